package main

import (
	"fmt"
	"slices"
	"strings"
)

// Check says which rows failed, a line each: those that don't keep their guard
// limit, and those that can't be computed, for what isn't measured proves
// nothing.
func Check(figures []Figure) (failed []string) {
	for _, f := range figures {
		switch {
		case f.Err != nil:
			failed = append(failed, fmt.Sprintf("%s: %v", f.Row.Name, f.Err))
		case !f.Keeps(f.Row.Guard):
			failed = append(failed, fmt.Sprintf("%s: %s: %s, demanded is %s: %s",
				f.Row.Name, f.Row.What, f.Ratio(), f.Row.Guard.with(f.Row.Unit), f.Behind()))
		}
	}
	return failed
}

// Select takes the rows that a comma-separated list names by module, question or
// name; what begins with "-" takes some out again. Nothing selects all.
func Select(rows []Row, list string) ([]Row, error) {
	chosen := slices.Clone(rows)
	if list == "" {
		return chosen, nil
	}
	if !strings.HasPrefix(list, "-") {
		chosen = nil
	}
	for item := range strings.SplitSeq(list, ",") {
		name, out := strings.CutPrefix(item, "-")
		named := func(r Row) bool { return r.Module() == name || r.Question == name || r.Name == name }
		if !slices.ContainsFunc(rows, named) {
			return nil, fmt.Errorf("no row, question or module is called %q", name)
		}
		if out {
			chosen = slices.DeleteFunc(chosen, named)
			continue
		}
		for _, r := range rows {
			if named(r) && !slices.ContainsFunc(chosen, func(c Row) bool { return c.Name == r.Name }) {
				chosen = append(chosen, r)
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%q selects no row", list)
	}
	return chosen, nil
}
