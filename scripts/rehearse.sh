#!/usr/bin/env bash
# rehearse.sh
#
# Rehearses a release: lays all modules out as a module proxy serves them, and from an empty
# module cache outside of the tree builds a program that imports each module, and installs and
# runs the command.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

version=v0.0.1-rehearsal
work=$(mktemp -d)
trap 'chmod -R u+w -- "$work"; rm -rf -- "$work"' EXIT
scripts/release.sh "$version" "$work/proxy"

# Other modules come from the module cache of this machine, if it has them.
export GOPROXY="file://$work/proxy,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
export GOPATH=$work/go GOMODCACHE=$work/go/pkg/mod GOBIN=$work/bin GOSUMDB=off GOFLAGS="${GOFLAGS:-} -mod=mod" GOWORK=off
mkdir -p -- "$work/program"
cd -- "$work/program"
module=github.com/leasehold-go/leasehold
go mod init example.org/program
# program FLAG PACKAGE...: builds a program that imports these packages, and runs it.
program() {
	{ printf 'package main\n\nimport (\n'; printf "\t_ \"$module/%s\"\n" "${@:2}"; printf ')\n\nfunc main() {}\n'; } >main.go
	go build -trimpath $1 -o program .
	./program
}
go get "$module@$version" "$module/leaseholdotel@$version" "$module"/integrations/{certmagiclock,gocronlock,grpccap,rivercap}"@$version"
export CGO_ENABLED=0
program '' leaseholdotel multi singleflight
# Where it can be, this is built as the tests of the integrations are, so that what they share is built once.
race=
if command -v "${CC:-gcc}" >/dev/null; then CGO_ENABLED=1 race=-race; fi
program "$race" integrations/{certmagiclock,gocronlock,grpccap,httpcap,rivercap}
export CGO_ENABLED=0
go install -trimpath "$module/cmd/leasehold@$version"
"$GOBIN/leasehold" --version | grep -F -- "$version"
# Without C it is one static file, which says how it was built.
go version -m "$GOBIN/leasehold" | grep -E 'CGO_ENABLED=0|-trimpath=true'
[ "$(go version -m "$GOBIN/leasehold" | grep -cE 'CGO_ENABLED=0|-trimpath=true')" = 2 ]
echo "rehearsed: $version"
