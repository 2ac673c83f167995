package harness

import "testing"

// Once runs fn in the first op and lets the others pass: for what needs its own
// time, such as a period of renewals, however long the benchmark is to run.
func Once(b *testing.B, fn func()) {
	b.Helper()
	for done := false; b.Loop(); done = true {
		if !done {
			fn()
		}
	}
	b.ReportMetric(0, "ns/op")
}
