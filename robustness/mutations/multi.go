package main

const multiTests = "./internal/tests/contract/multi"

// several holds the guards of package multi.
var several = []mutation{
	cut("multi: items are taken in order", "multi/item.go", multiTests, "Nothing|Order",
		"return cmp.Compare(a.name, b.name)", "return 0 * cmp.Compare(a.name, b.name)"),
	cut("multi: nothing is kept behind a refusal", "multi/acquire.go", multiTests, "Nothing|Order|TryAcquire",
		"case a.err == nil && i < end:", "case a.err == nil:"),
	cut("multi: nothing is held behind an item that is queued for", "multi/acquire.go", multiTests, "Nothing",
		"\t\tgiveBack(answers())\n\t\tanswers = func() []answer { return nil }\n", ""),
	cut("multi: nothing is held after an error", "multi/acquire.go", multiTests, "AfterAnError",
		"\tfor _, one := range t.held {\n\t\tone.lease.GiveBack()\n\t}\n", ""),
	cut("multi: a loss ends the Context", "multi/acquire.go", multiTests, "Loss|AfterAnError",
		"\t\t\ta.of.lease.CancelAtEnd(t.cancel)\n", ""),
	cut("multi: the error of a loss says so", "multi/acquire.go", multiTests, "AfterAnError",
		"why != nil && t.parent.Err() == nil", "why != nil && false"),
	cut("multi: one round trip takes all", "multi/acquire.go", multiTests, "OneRoundTrip",
		"if alone || next.part.Manager.Waits(next.part.Attempt.Key) {", "if true || alone {"),
	cut("multi: nothing is tried behind a known queue", "multi/acquire.go", multiTests, "KnownQueue",
		"if alone || next.part.Manager.Waits(next.part.Attempt.Key) {", "if alone {"),
	cut("multi: an item that was refused is waited for alone", "multi/acquire.go", multiTests, "Refused",
		"\treturn end < len(all), err\n", "\treturn false, err\n"),
	cut("multi: one round trip gives all back", "multi/lease.go", multiTests, "OneRoundTrip",
		"ReleaseTogether(op, seats[0])", "Release(op)"),
	cut("multi: tries are not counted", "multi/acquire.go", multiTests, "Observers",
		"a.Quiet = t.op, wait, seat, true", "a.Quiet = t.op, wait, seat, false"),
	cut("multi: two keys of a total are refused", "multi/item.go", multiTests, "Checked",
		"case a.name != b.name:", "case a.label != b.label:"),
	cut("multi: what the process keeps is given back first", "multi/acquire.go", multiTests, "Kept",
		"done.Go(func() { k.GiveBack(ctx, op, one.part.Attempt.Key) })", "_ = k"),
	cut("multi: no name twice", "multi/item.go", multiTests, "Checked",
		"case a.label == b.label:", "case false:"),
}
