package redistest

import (
	"slices"
	"testing"
)

func TestInstalledIsSortedAndWithoutDoubles(t *testing.T) {
	found := NeedServers(t)
	if !slices.IsSortedFunc(found, compareVersions) {
		t.Fatalf("not sorted: %v", found)
	}
	if twice := slices.CompactFunc(slices.Clone(found), func(a, b Version) bool { return a.Name == b.Name }); len(twice) != len(found) {
		t.Fatalf("doubles: %v", found)
	}
	for _, v := range found {
		if !v.AtLeast(7, 0) {
			t.Errorf("%s is too old for the library", v)
		}
	}
}

func TestAtLeastComparesMajorFirst(t *testing.T) {
	v := Version{Major: 8, Minor: 0}
	if !v.AtLeast(7, 2) || !v.AtLeast(8, 0) || v.AtLeast(8, 1) || v.AtLeast(9, 0) {
		t.Fatal("wrong order")
	}
}
