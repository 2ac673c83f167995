package listing

import (
	"cmp"
	"slices"
)

// Sort sorts resources in the order of listings: by kind, family and key.
func Sort(all []Resource) { slices.SortFunc(all, Compare) }

// Compare compares two resources by kind, family and key. A family itself comes before its
// keys.
func Compare(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Key, b.Key))
}
