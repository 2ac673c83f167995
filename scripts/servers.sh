#!/usr/bin/env bash
# servers.sh [--all] [DEST]
#
# Brings the servers that the tests run on, side by side, into DEST (.servers
# of this module where none is given):
#
#   DEST/<name>/run/{redis,valkey}-{server,cli,benchmark}
#
# Redis 7.0 and 8.0 and Valkey 8.0 and 8.1 come out of Debian's packages, from
# the mirror that this machine's apt is set up with. They are unpacked, not
# installed: nothing outside DEST changes, no service starts, and no root is
# needed. What is there already is left as it is.
#
# A version that can't be had is named on stderr, and the rest has to do; with
# --all, that is a failure. Where Debian's suites can't be had, whatever the
# system's own apt offers is unpacked instead, or what is on PATH is used.
set -euo pipefail

all=
dest=
for arg in "$@"; do
	case $arg in
	--all) all=1 ;;
	-*) echo "usage: servers.sh [--all] [DEST]" >&2 && exit 2 ;;
	*) dest=$arg ;;
	esac
done
dest=${dest:-$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)/.servers}

# name, package, the suite it is in, and a suite for what it needs besides.
wanted=(
	"redis70 redis-server bookworm"
	"valkey80 valkey-server bookworm-backports bookworm"
	"redis80 redis-server trixie"
	"valkey81 valkey-server trixie"
)

has() { [ -e "$dest/$1/ready" ]; }

missing=()
for line in "${wanted[@]}"; do
	has "${line%% *}" || missing+=("$line")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

mkdir -p -- "$dest"
dest=$(cd -- "$dest" && pwd)
work=$(mktemp -d -- "$dest/.work.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

say() { echo "servers.sh: $*" >&2; }

# mirror prints the address from which this system gets Debian, if it does.
# The configuration is asked, not what was downloaded: a fresh machine has no
# package lists yet.
mirror() {
	local codename
	# shellcheck source=/dev/null
	codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-sid}") || return 0
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk -v codename="$codename" '
			$3 == "main" && $2 ~ "^(" codename "|stable|oldstable|testing|unstable|sid)$" && !uri { uri = $1 }
			END { print uri }'
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# apt runs apt-get with a state of its own, in the folder $state, so that the
# system's is neither needed nor touched.
apt() {
	local own=(
		-o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache"
		-o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=2
		# Container images turn these off, and every call would begin anew.
		-o Dir::Cache::pkgcache=pkgcache.bin -o Dir::Cache::srcpkgcache=srcpkgcache.bin -o Acquire::GzipIndexes=false
		-o APT::Architecture="$(dpkg --print-architecture)" -o APT::Architectures="$(dpkg --print-architecture)"
	)
	if [ -e "$state/sources.list" ]; then
		own+=(-o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=-)
	fi
	apt-get -qq "${own[@]}" "$@"
}

# lists prepares $state for the given suites, or for the system's own sources
# where none is given.
lists() {
	local suites="$*"
	state=$work/apt-${suites// /+}
	[ ! -e "$state/done" ] || return 0
	mkdir -p -- "$state/lists/partial" "$state/cache/archives/partial" || return
	: >"$state/status"
	if [ $# -gt 0 ]; then
		printf "deb [signed-by=$keyring] $uri %s main\n" "$@" >"$state/sources.list"
	fi
	apt -o APT::Update::Error-Mode=any update || return
	: >"$state/done"
}

# fetch NAME PACKAGE [SUITE...] unpacks a package with the libraries it needs,
# the C library too: a program of another release runs with nothing else.
fetch() {
	local name=$1 package=$2 new=$work/$1
	shift 2
	lists "$@" || return
	# Nothing is installed as far as this apt knows, so the simulation lists
	# all that the package would pull in.
	local choose=() packages
	[ $# -eq 0 ] || choose=(-t "$1")
	packages=$(apt -s --no-install-recommends "${choose[@]}" install "$package" |
		awk '$1 == "Inst" && $2 ~ /^(lib|zlib1g|redis-|valkey-)/ && $2 !~ /perl/ { print $2 }') || return
	[ -n "$packages" ] || return
	mkdir -p -- "$new/debs" "$new/root" "$new/run" || return
	# shellcheck disable=SC2086 # one word a package
	(cd -- "$new/debs" && apt "${choose[@]}" download $packages) || return
	local deb
	for deb in "$new"/debs/*.deb; do
		dpkg-deb -x "$deb" "$new/root" || return
	done
	rm -rf -- "$new/debs" "$new/root/usr/share"
	wrap "$new" || return
	local server
	server=$(echo "$new"/run/*-server)
	"$server" --version >"$new/ready" || return
	rm -rf -- "${dest:?}/$name"
	mv -- "$new" "$dest/$name"
}

# wrap makes a script a program, which starts it with its own libraries. It
# finds them beside itself: the folder can be moved.
wrap() {
	local root=$1/root loader bin
	loader=$(find "$root" -type f -name 'ld-linux*.so.*' | head -n 1)
	[ -n "$loader" ] || return
	local libs=${loader%/*}
	local triplet=${libs##*/}
	loader=${loader#"$root"/}
	for bin in "$root"/usr/bin/*-server "$root"/usr/bin/*-cli "$root"/usr/bin/*-benchmark; do
		case ${bin##*/} in redis-* | valkey-*) ;; *) continue ;; esac
		# The name must be kept: one program does several jobs by its name.
		cat >"$1/run/${bin##*/}" <<END
#!/bin/sh
root=\${0%/*}/../root
exec "\$root/$loader" --argv0 "${bin##*/}" --library-path "\$root/usr/lib/$triplet:\$root/lib/$triplet" "\$root/usr/bin/${bin##*/}" "\$@"
END
		chmod +x "$1/run/${bin##*/}" || return
	done
}

attempt() { # NAME PACKAGE [SUITE...], telling what happened in a line
	local log=$work/log
	if fetch "$@" >"$log" 2>&1; then
		say "$1: $(sed 's/ server v=/ /; s/ sha=.*//' "$dest/$1/ready")"
	else
		say "$1 can't be had: $(grep -m 1 '^E:' "$log" || tail -n 1 "$log")"
		return 1
	fi
}

found() { compgen -G "$dest/*/ready" >/dev/null; }

uri=
failed=
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	uri=$(mirror)
	if [ -n "$uri" ] && [ -e "$keyring" ]; then
		for line in "${missing[@]}"; do
			# shellcheck disable=SC2086 # one word a field
			attempt $line || failed=1
		done
	else
		failed=1
		say "this system's apt has no Debian to take Redis 7.0, 8.0 and Valkey 8.0, 8.1 from: trying what it has"
	fi
	if ! found; then
		attempt redis redis-server || :
		attempt valkey valkey-server || :
	fi
else
	failed=1
	say "there is no apt here to take Redis 7.0, 8.0 and Valkey 8.0, 8.1 from"
fi

if [ -n "$failed" ] && [ -n "$all" ]; then
	say "not all servers could be had"
	exit 1
fi
found && exit 0
for bin in redis-server valkey-server; do
	if path=$(command -v "$bin"); then
		say "using $path"
		exit 0
	fi
done
say "no server to test on: install redis-server (7.0 or later) or valkey-server (8.0 or later), so that it is on PATH"
exit 1
