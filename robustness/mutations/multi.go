package main

const multiTests = "./internal/tests/contract/multi"

// several holds the guards of package multi.
var several = []mutation{
	{
		name: "multi: items are taken in order", file: "multi/item.go",
		old: "return cmp.Compare(a.name, b.name)", new: "return 0 * cmp.Compare(a.name, b.name)",
		packages: multiTests, tests: "Nothing|Order",
	},
	{
		name: "multi: nothing is kept behind a refusal", file: "multi/acquire.go",
		old: "case a.err == nil && i < end:", new: "case a.err == nil:",
		packages: multiTests, tests: "Nothing|Order|TryAcquire",
	},
	{
		name: "multi: nothing is held behind an item that is queued for", file: "multi/acquire.go",
		old: "\t\tgiveBack(answers())\n\t\tanswers = func() []answer { return nil }\n", new: "",
		packages: multiTests, tests: "Nothing",
	},
	{
		name: "multi: nothing is held after an error", file: "multi/acquire.go",
		old: "\tfor _, one := range t.held {\n\t\tone.lease.GiveBack()\n\t}\n", new: "",
		packages: multiTests, tests: "AfterAnError",
	},
	{
		name: "multi: a loss ends the Context", file: "multi/acquire.go",
		old: "\t\t\ta.of.lease.CancelAtEnd(t.cancel)\n", new: "",
		packages: multiTests, tests: "Loss|AfterAnError",
	},
	{
		name: "multi: the error of a loss says so", file: "multi/acquire.go",
		old: "why != nil && t.parent.Err() == nil", new: "why != nil && false",
		packages: multiTests, tests: "AfterAnError",
	},
	{
		name: "multi: one round trip takes all", file: "multi/acquire.go",
		old: "if alone || next.part.Manager.Waits(next.part.Attempt.Key) {", new: "if true || alone {",
		packages: multiTests, tests: "OneRoundTrip",
	},
	{
		name: "multi: nothing is tried behind a known queue", file: "multi/acquire.go",
		old: "if alone || next.part.Manager.Waits(next.part.Attempt.Key) {", new: "if alone {",
		packages: multiTests, tests: "KnownQueue",
	},
	{
		name: "multi: an item that was refused is waited for alone", file: "multi/acquire.go",
		old: "\treturn end < len(all), err\n", new: "\treturn false, err\n",
		packages: multiTests, tests: "Refused",
	},
	{
		name: "multi: one round trip gives all back", file: "multi/lease.go",
		old: "ReleaseTogether(op, seats[0])", new: "Release(op)",
		packages: multiTests, tests: "OneRoundTrip",
	},
	{
		name: "multi: tries are not counted", file: "multi/acquire.go",
		old: "a.Quiet = t.op, wait, seat, true", new: "a.Quiet = t.op, wait, seat, false",
		packages: multiTests, tests: "Observers",
	},
	{
		name: "multi: two keys of a total are refused", file: "multi/item.go",
		old: "case a.name != b.name:", new: "case a.label != b.label:",
		packages: multiTests, tests: "Checked",
	},
	{
		name: "multi: no name twice", file: "multi/item.go",
		old: "case a.label == b.label:", new: "case false:",
		packages: multiTests, tests: "Checked",
	},
}
