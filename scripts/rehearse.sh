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
# Where it can be, the program is built as the tests of the integrations are, so that what they share is built once.
export CGO_ENABLED=0
race=
if command -v "${CC:-gcc}" >/dev/null; then CGO_ENABLED=1 race=-race; fi
mkdir -- "$work/program"
cd -- "$work/program"
module=github.com/leasehold-go/leasehold
cat >main.go <<MAIN
package main

import (
	_ "$module/integrations/certmagiclock"
	_ "$module/integrations/gocronlock"
	_ "$module/integrations/grpccap"
	_ "$module/integrations/httpcap"
	_ "$module/integrations/rivercap"
	_ "$module/leaseholdotel"
	_ "$module/multi"
	_ "$module/singleflight"
)

func main() {}
MAIN
go mod init example.org/program
go get "$module@$version" "$module/leaseholdotel@$version" "$module"/integrations/{certmagiclock,gocronlock,grpccap,rivercap}"@$version"
go build -trimpath $race -o program .
./program
export CGO_ENABLED=0
go install -trimpath "$module/cmd/leasehold@$version"
"$GOBIN/leasehold" --version | grep -F -- "$version"
# Without C it is one static file, which says how it was built.
go version -m "$GOBIN/leasehold" | grep -E 'CGO_ENABLED=0|-trimpath=true'
[ "$(go version -m "$GOBIN/leasehold" | grep -cE 'CGO_ENABLED=0|-trimpath=true')" = 2 ]
echo "rehearsed: $version"
