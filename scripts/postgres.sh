#!/usr/bin/env bash
# postgres.sh [--unpack] [DEST]
#
# Brings a PostgreSQL that the examples can start. Where one is installed there
# is nothing to do, unless --unpack is given; else it is unpacked into DEST
# (.postgres of this module where none is given), as the programs
#
#   DEST/run/{initdb,postgres}
#
# It comes from the mirror that this machine's apt is set up with. It is
# unpacked, not installed: nothing outside DEST changes, no service starts, and
# no root is needed.
set -euo pipefail

unpack=
dest=
for arg in "$@"; do
	case $arg in
	--unpack) unpack=1 ;;
	-*) echo "usage: postgres.sh [--unpack] [DEST]" >&2 && exit 2 ;;
	*) dest=$arg ;;
	esac
done
dest=${dest:-$(cd -- "${BASH_SOURCE[0]%/*}/.." && pwd)/.postgres}

say() { echo "postgres.sh: $*" >&2; }

if [ -z "$unpack" ]; then
	for initdb in "$(command -v initdb || :)" /usr/lib/postgresql/*/bin/initdb /usr/local/pgsql/bin/initdb; do
		if [ -x "$initdb" ]; then
			say "$("$initdb" --version | sed 's/^initdb //') is here: $initdb"
			exit 0
		fi
	done
fi
[ ! -x "$dest/run/initdb" ] || exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
	say "there is no apt here to take PostgreSQL from: install it, so that initdb is on PATH"
	exit 1
fi

mkdir -p -- "$dest"
dest=$(cd -- "$dest" && pwd)
work=$(mktemp -d -- "$dest/.work.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
mkdir -p -- "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/new/root" "$work/new/run"

# apt runs apt-get with package lists of its own, so that the system's are
# neither needed nor touched. What is installed it knows from the system: the
# simulation then lists only what is missing.
apt() {
	apt-get -qq -o Dir::State="$work/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$work/cache" \
		-o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}
apt -o APT::Update::Error-Mode=any update
package=$(apt -s --no-install-recommends install postgresql | awk '$1 == "Inst" && $2 ~ /^postgresql-[0-9]+$/ { print $2 }')
if [ -z "$package" ]; then # it is installed, and was asked for all the same
	package=$(dpkg-query -W -f '${Package}\n' 'postgresql-[0-9]*' | grep -E '^postgresql-[0-9]+$' | tail -n 1)
fi
needed=$(apt -s --no-install-recommends --reinstall install "$package" |
	awk '$1 == "Inst" && $2 ~ /^(lib|postgresql-)/ { print $2 }')
# shellcheck disable=SC2086 # one word a package
(cd -- "$work/debs" && apt download $needed)
for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/new/root"
done

# The programs find each other by their own paths, and what they share by those.
bin=$(cd -- "$work/new/root" && echo usr/lib/postgresql/*/bin)
for program in initdb postgres; do
	cat >"$work/new/run/$program" <<END
#!/bin/sh
root=\$(cd -- "\$(dirname -- "\$0")/../root" && pwd)
for libs in "\$root"/usr/lib/*-linux-gnu* "\$root"/lib/*-linux-gnu*; do
	LD_LIBRARY_PATH=\$libs\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "\$root/$bin/$program" "\$@"
END
	chmod +x "$work/new/run/$program"
done
version=$("$work/new/run/initdb" --version)
chmod -R go+rX "$work/new"
rm -rf -- "$dest/root" "$dest/run"
mv -- "$work/new/root" "$work/new/run" "$dest"
say "${version#initdb } is in $dest"
