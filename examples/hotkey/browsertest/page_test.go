package browsertest

import (
	"testing"
	"time"
)

// ttl is long enough that a load can be told to be due to an invalidation.
const ttl = 3 * time.Second

// One goes through the page as somebody who sees it for the first time would.
func TestPage(t *testing.T) {
	path := chromium(t)
	b := open(t, path, start(t, "-ttl", ttl.String()))

	calm := func(f figures) bool { return f.Expiries >= 2 && f.Hits > 0 && f.Waits > 0 && f.Rate > 0 }
	exact := func(f figures) {
		t.Helper()
		if f.Loads != f.Expiries || f.Per != 1 || f.Errors != 0 {
			t.Errorf("with protection: %d loads in %d expiries, %v each, and %d errors", f.Loads, f.Expiries, f.Per, f.Errors)
		}
	}
	f := b.until("protected, and the figures move", func(f figures) bool { return f.Mode == "on" && calm(f) })
	exact(f)
	if f.State != "Protected" || f.Bars < 2 || f.Points < 2 {
		t.Errorf("it says %q, with %d bars and %d points in its charts", f.State, f.Bars, f.Points)
	}

	b.click("protect")
	f = b.until("a stampede", func(f figures) bool { return f.Mode == "off" && f.Expiries >= 2 && f.Per > 3 })
	if f.State != "Unprotected" || f.Loads <= 3*f.Expiries {
		t.Errorf("without protection: %+v", f)
	}
	b.shoot("off")

	b.click("protect")
	exact(b.until("calm again", func(f figures) bool { return f.Mode == "on" && calm(f) }))
	invalidate(b)
	b.shoot("on")

	b.click("stale")
	exact(b.until("stale values", func(f figures) bool { return f.Mode == "on+stale" && f.Expiries >= 2 && f.Stale > 0 }))
	b.shoot("stale")
	b.noFaults()
}

// invalidate sees one more load than the clock alone would bring.
func invalidate(b *browser) {
	b.t.Helper()
	for range 3 {
		was := b.look().Loads
		b.until("a load", func(f figures) bool { return f.Loads > was })
		began := time.Now() // not before it had
		before := b.until("its end", func(f figures) bool { return f.Running == 0 })
		if before.Loads != was+1 {
			continue
		}
		b.click("invalidate")
		after := b.until("one more load", func(f figures) bool { return f.Loads > before.Loads })
		if time.Since(began) > ttl/2 {
			continue // on a machine this slow, it may have been one that was due
		}
		if after.Loads != before.Loads+1 || after.Expiries != before.Expiries+1 {
			b.t.Errorf("an invalidation made %d loads and %d expiries into %d and %d",
				before.Loads, before.Expiries, after.Loads, after.Expiries)
		}
		return
	}
	b.t.Error("this machine is too slow to tell an invalidation from an expiry")
}
