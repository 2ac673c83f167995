package listing

import (
	"cmp"
	"slices"
)

// Sort orders resources as listings show them: by kind, family and key.
func Sort(all []Resource) { slices.SortFunc(all, Compare) }

// Compare orders two resources: by kind, family and key, a family's own one first.
func Compare(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Key, b.Key))
}
