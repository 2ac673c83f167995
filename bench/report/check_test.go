package main

import (
	"slices"
	"strings"
	"testing"
)

func row(name string, f Formula, guard Limit, counted bool) Row {
	return Row{Name: name, Question: "q", Formula: f, Guard: guard, Counted: counted}
}

func TestCheckNoticesAFailingRow(t *testing.T) {
	in := read(t, output)
	above := difference(lonely, "mutex-µs", "floor-µs") // 10, 15, 21
	for name, c := range map[string]struct {
		row  Row
		fail bool
	}{
		"kept":                         {row("r", above, atMost(15), false), false},
		"median above":                 {row("r", above, atMost(14.9), false), true},
		"median below":                 {row("r", above, atLeast(15.1), false), true},
		"at least, kept":               {row("r", above, atLeast(15), false), false},
		"counted, one repetition off":  {row("r", above, atMost(20), true), true},
		"counted, each kept":           {row("r", above, atMost(21), true), false},
		"exactly":                      {row("r", metric(of(ours, "LoneAllocs"), "allocs/op"), exactly(20), true), false},
		"exactly, off":                 {row("r", metric(of(ours, "LoneAllocs"), "allocs/op"), exactly(19), true), true},
		"no limit":                     {row("r", above, Limit{}, false), false},
		"missing metric":               {row("r", metric(lonely, "none-µs"), atMost(1e9), false), true},
		"missing metric, and no limit": {row("r", metric(lonely, "none-µs"), Limit{}, false), true},
		"missing benchmark":            {row("r", metric(of(peers, "LonePair"), "mutex-µs"), atLeast(0), true), true},
	} {
		failed := Check(Figures(in, []Row{c.row}))
		if (len(failed) > 0) != c.fail {
			t.Errorf("%s: failed: %q", name, failed)
		}
		for _, line := range failed {
			if !strings.HasPrefix(line, "r: ") {
				t.Errorf("%s: %q doesn't name the row", name, line)
			}
		}
	}
}

// What failed is told with its figures.
func TestCheckTellsTheFigures(t *testing.T) {
	failed := Check(Figures(read(t, output), []Row{row("r", difference(lonely, "mutex-µs", "floor-µs"), atMost(12), false)}))
	if len(failed) != 1 {
		t.Fatalf("%q", failed)
	}
	for _, want := range []string{"15 (10–21)", "≤ 12", "mutex 105 µs", "floor 90 µs"} {
		if !strings.Contains(failed[0], want) {
			t.Errorf("%q has no %q", failed[0], want)
		}
	}
}

func TestVerdict(t *testing.T) {
	in := read(t, output)
	for bar, want := range map[Limit]string{atMost(15): "reached", atMost(14): "not reached", {}: ""} {
		r := row("r", difference(lonely, "mutex-µs", "floor-µs"), Limit{}, false)
		r.Bar = bar
		if got := Figures(in, []Row{r})[0].Verdict(); got != want {
			t.Errorf("%v: %q; want %q", bar, got, want)
		}
	}
	r := row("r", metric(lonely, "none-µs"), Limit{}, false)
	r.Bar = atMost(1)
	if got := Figures(in, []Row{r})[0].Verdict(); got != "not measured" {
		t.Errorf("%q", got)
	}
}

func TestSelect(t *testing.T) {
	all := []Row{
		row("a1", metric(of(ours, "A"), "µs"), Limit{}, false),
		row("a2", metric(of(peers, "A"), "µs"), Limit{}, false),
		row("b1", metric(of(ours, "B"), "µs"), Limit{}, false),
	}
	all[2].Question = "other"
	for list, want := range map[string]string{
		"": "a1 a2 b1", ours: "a1 b1", peers: "a2", "bench,-other": "a1", "-a1": "a2 b1", "b1,a2": "b1 a2", "q,a1": "a1 a2",
	} {
		rows, err := Select(all, list)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q selects %s; want %s", list, got, want)
		}
	}
	for _, list := range []string{"benches", "bench,", "a1,-a1"} {
		if rows, err := Select(all, list); err == nil {
			t.Errorf("%q selects %v", list, rows)
		}
	}
}

// A guard limit that is stricter than the bar would fail what reaches it, and a
// bar without one would never be looked at.
func TestRows(t *testing.T) {
	var names []string
	for _, r := range Rows {
		if slices.Contains(names, r.Name) {
			t.Errorf("two rows are called %s", r.Name)
		}
		names = append(names, r.Name)
		if r.What == "" || len(r.Units) == 0 || (r.Module() != ours && r.Module() != peers) {
			t.Errorf("%s is not complete", r.Name)
		}
		if r.Bar.Set() && (!r.Guard.Set() || !r.Guard.Keeps(r.Bar.value)) {
			t.Errorf("%s: the guard is %s, the bar %s", r.Name, r.Guard.with(""), r.Bar.with(""))
		}
	}
}
