#!/usr/bin/env bash
# release.sh VERSION DIR
#
# Lays the modules that users import or install out in DIR as a module proxy serves them, from
# the files that git tracks: without the replace lines, and requiring each other at VERSION.
#
# rehearse.sh builds programs from that folder, as users would. A real release tags the same
# commits: v0.1.0, and for each nested module leaseholdotel/v0.1.0 and so on.
set -euo pipefail
version=$1
dir=$(mkdir -p -- "$2" && cd -- "$2" && pwd)
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

module=github.com/leasehold-go/leasehold
tree=$(git write-tree) # what is staged counts, too
for folder in "" leaseholdotel cmd/leasehold integrations/{certmagiclock,gocronlock,grpccap,rivercap}; do
	name=$module${folder:+/$folder}
	to=$dir/$name/@v
	mkdir -p -- "$to"
	echo "$version" >"$to/list"
	echo "{\"Version\":\"$version\"}" >"$to/$version.info"
	mod=$(sed -e "\#^replace $module#d" -e "s#\($module[^ ]*\) v0\.0\.0\$#\1 $version#" "${folder:-.}/go.mod")
	printf '%s\n' "$mod" >"$to/$version.mod"
	if [[ $mod == *replace* ]]; then
		echo "release.sh: the go.mod of $name still replaces a module" >&2
		exit 1
	fi
	# Modules below this one are no part of it.
	nested=$(cd -- "./$folder" && git ls-files '*/go.mod' | sed 's#^\(.*\)/go.mod$#:!\1#')
	# shellcheck disable=SC2086 # one word each
	git archive --format=zip --output="$to/$version.zip" --prefix="$name@$version/" \
		--add-virtual-file="$name@$version/go.mod:$mod"$'\n' \
		"$tree:$folder" -- . ':!go.mod' $nested
done
