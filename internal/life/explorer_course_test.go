package life

import "testing"

// The leave is repeated, and a FLUSHALL has taken the mark of the revocation. Nobody can know that
// it was not an earlier leave that gave the lease back.
func TestRevocationThatTheServerForgetsIsNotTold(t *testing.T) {
	course(t, newWorld(1, 1, nil), "A is revoked", "message of A: lost", "leave of A: the request is lost", "FLUSHALL")
}

// course follows the usual course of w, but for deviations. Each comes as soon as it can after the one before it.
func course(t *testing.T, w *world, deviations ...string) {
	t.Helper()
	check := func(violation string) {
		if violation == "" {
			violation = w.judge()
		}
		if violation != "" {
			t.Fatalf("%s\n%v", violation, w)
		}
	}
	for {
		for again := true; again; {
			again = false
			for _, d := range w.deviations(nil) {
				if len(deviations) > 0 && d.name == deviations[0] {
					check(d.do(w))
					deviations, again = deviations[1:], true
					break
				}
			}
		}
		what := w.next()
		if what < 0 {
			break
		}
		check(w.step(what))
	}
	if len(deviations) > 0 {
		t.Fatalf("%q did not come", deviations)
	}
	check(w.judgeEnd())
}
