package listing

import (
	"cmp"
	"slices"
)

// Compare compares two resources by kind, family, key and schema. A family itself comes before
// its keys.
func Compare(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Family, b.Family), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Schema, b.Schema))
}

// Orders are the ways to sort uses.
var Orders = []string{"attention", "wait", "waiting", "use", "held", "name"}

// SortUses sorts in one of the Orders; uses that are alike are sorted by name. For attention
// come those with a lease that may hang, then those with the most waiters: the longest wait
// changes all the time, so that a row would not stay where it is.
func SortUses(uses []Use, order string) {
	slices.SortStableFunc(uses, func(a, b Use) int {
		wait, waiting, use := cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse)
		first := 0
		switch order {
		case "attention":
			first = cmp.Or(hanging(b)-hanging(a), waiting, use)
		case "wait":
			first = cmp.Or(wait, waiting)
		case "waiting":
			first = cmp.Or(waiting, wait)
		case "use":
			first = cmp.Or(use, waiting)
		case "held":
			first = cmp.Compare(b.HeldFor, a.HeldFor)
		}
		return cmp.Or(first, Compare(a.Resource, b.Resource))
	})
}

func hanging(u Use) int {
	if u.Overlong {
		return 1
	}
	return 0
}
