package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shown is a model with n keys, the first few of which have queues.
func shown(n int) model {
	m := model{every: time.Second, width: 80, height: 20, ready: true}
	for i := range n {
		u := listing.Use{Resource: listing.Of("", keys.Semaphore, "exports", fmt.Sprintf("key-%04d", i), false), InUse: 1 + i%3, Limit: 5}
		if i < 3 {
			u.Waiting, u.LongestWait = 10*(i+1), time.Duration(10-i)*time.Second
		}
		m.known = append(m.known, u)
	}
	return m
}

// press gives keys to a model, as a terminal would: words that name no key are
// typed.
func press(m model, all ...string) model {
	for _, word := range all {
		keys := []key{key(word)}
		if word != "enter" && word != "esc" && word != "down" {
			keys = nil
			for _, r := range word {
				keys = append(keys, key(string(r)))
			}
		}
		for _, k := range keys {
			m, _ = m.update(k)
		}
	}
	return m
}

// fits fails the test unless the view has the height of the terminal and no line
// is wider.
func fits(t *testing.T, m model, width, height int) string {
	t.Helper()
	view := m.view()
	if len(view) != height {
		t.Errorf("%d lines on a terminal of %d", len(view), height)
	}
	var all strings.Builder
	for _, line := range view {
		words := ""
		for _, part := range line {
			words += part.text
		}
		if w := text.Width(words); w > width {
			t.Errorf("%d columns of %d: %q", w, width, words)
		}
		all.WriteString(words + "\n")
	}
	return all.String()
}

func TestItFitsEveryTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}, {100, 5}} {
		for _, n := range []int{0, 1, 7, 2000} {
			m := shown(n)
			if n == 7 {
				m.known[0].Resource = listing.Of("", keys.Semaphore, strings.Repeat("family", 40), strings.Repeat("日本\x1b[2J", 40), false)
			}
			m, _ = m.update(resized{size[0], size[1]})
			fits(t, m, size[0], size[1])
			fits(t, press(m, "G"), size[0], size[1])
			if view := fits(t, press(m, "/", "nothing has this", "enter"), size[0], size[1]); n > 0 && strings.Contains(view, "key-0001") {
				t.Error("the filter lets all through")
			}
		}
	}
}

func TestKeysMoveSortAndFilter(t *testing.T) {
	m := shown(100)
	first := func(m model) string { return m.rows()[0].Key }
	if first(m) != "key-0002" {
		t.Errorf("the longest queue is not first but %s", first(m))
	}
	if m = press(m, "s"); first(m) != "key-0000" {
		t.Errorf("by longest wait %s is first", first(m))
	}
	if m = press(m, "s", "s"); first(m) != "key-0000" || m.rows()[50].Key != "key-0050" {
		t.Errorf("by name %s is first", first(m))
	}
	m = press(m, "jjj", "down", "k") // some keys at once
	if m.rows()[m.at].Key != "key-0003" {
		t.Errorf("it is at %s", m.rows()[m.at].Key)
	}
	// What is chosen stays chosen where the order changes.
	if m = press(m, "s"); m.rows()[m.at].Key != "key-0003" {
		t.Errorf("it went to %s", m.rows()[m.at].Key)
	}
	m = press(m, "/key-009", "enter")
	if n := len(m.rows()); n != 10 {
		t.Errorf("%d rows have key-009", n)
	}
	if m = press(m, "esc"); len(m.rows()) != 100 {
		t.Error("esc keeps the filter")
	}
	if m = press(m, "G"); m.at != 99 || m.from != 80 {
		t.Errorf("the end is at %d, from %d", m.at, m.from)
	}
	if _, do := m.update(key("q")); do == nil || do() != (quit{}) {
		t.Error("q does not quit")
	}
}

func TestHoldersAndWaitersOfAKey(t *testing.T) {
	m := press(shown(5), "enter")
	if m.open == nil || m.open.Key != "key-0002" {
		t.Fatalf("open is %v", m.open)
	}
	s := listing.State{Resource: *m.open, InUse: 1, Limit: 5, At: time.Now()}
	s.Holders = []listing.Holder{{Holder: leasehold.Holder{ID: "AbCdEfGh-1", Permits: 1, Label: "web-1:17", ExpiresIn: time.Second}}}
	for i := range 60 {
		s.Waiters = append(s.Waiters, listing.Waiter{Waiter: leasehold.Waiter{ID: fmt.Sprintf("waiter-%d", i), Permits: 1, Position: i + 1}})
	}
	m, _ = m.update(opened{&s})
	view := fits(t, m, 80, 24)
	for _, want := range []string{"exports/key-0002", "1 of 5 in use, 60 waiting", "AbCdEfGh-1", "web-1:17", "waiter-0"} {
		if !strings.Contains(view, want) {
			t.Errorf("it does not show %q:\n%s", want, view)
		}
	}
	if view = fits(t, press(m, "G"), 80, 24); !strings.Contains(view, "waiter-59") {
		t.Errorf("the end is not shown:\n%s", view)
	}
	if m = press(m, "esc"); m.open != nil {
		t.Error("esc does not go back")
	}
}

// A look finds what is held, and the next one what has become of it.
func TestLooksFollowTheLeases(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		mtx, err := mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		lock, err := mtx.Lock(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		m := model{ctx: t.Context(), list: listing.New(rdb, prefix), every: time.Second, width: 80, height: 20}
		look := func() {
			t.Helper()
			m, _ = m.update(m.load()())
			if m.err != nil {
				t.Fatal(m.err)
			}
		}
		look()
		if rows := m.rows(); len(rows) != 1 || rows[0].InUse != 1 {
			t.Fatalf("rows are %+v", rows)
		}
		m = press(m, "enter")
		look()
		if m.state == nil || len(m.state.Holders) != 1 || m.state.Holders[0].ID != lock.ID() {
			t.Fatalf("the state is %+v", m.state)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		m = press(m, "esc", "i")
		look()
		if !slices.ContainsFunc(m.rows(), func(u listing.Use) bool { return u.Key == "nightly" && u.InUse == 0 }) {
			t.Fatalf("rows are %+v", m.rows())
		}
		if err := mtx.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A tenant of a family with a total that has gone idle holds nothing any more.
func TestIdleTenantsHoldNothing(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		sem, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Prefix: prefix, Limit: 5, Total: 5})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := sem.AcquireN(t.Context(), "acme", 5)
		if err != nil {
			t.Fatal(err)
		}
		m := model{ctx: t.Context(), list: listing.New(rdb, prefix), every: time.Second, width: 80, height: 20}
		inUse := func() (n int) {
			t.Helper()
			if m, _ = m.update(m.load()()); m.err != nil {
				t.Fatal(m.err)
			}
			for _, u := range m.known {
				if u.Key == "acme" {
					n += u.InUse
				}
			}
			return n
		}
		if n := inUse(); n != 5 {
			t.Fatalf("%d permits are in use, want 5", n)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if n := inUse(); n != 0 {
			t.Errorf("%d permits are in use after the release", n)
		}
		if err := sem.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Among many keys the first look takes its time; those after it look at what is shown.
func TestManyKeysAreLookedAtSoon(t *testing.T) {
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	ends := float64(time.Now().Add(5 * time.Minute).UnixMilli())
	pipe := rdb.Pipeline()
	for i := range 110_000 {
		if i < 10_000 {
			pipe.ZAdd(t.Context(), fmt.Sprintf("leasehold:sem:{exports:%d}:holders", i), redis.Z{Score: ends, Member: "AbCdEfGh_-0123456789xy.1.1.300000.5"})
		} else {
			pipe.Set(t.Context(), fmt.Sprint("other:", i), i, 0)
		}
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := model{ctx: t.Context(), list: listing.New(rdb, ""), every: time.Second, width: 80, height: 20}
	for _, about := range []string{"the first look", "the next"} {
		before, began := redistest.Commandstats(t, rdb), time.Now()
		m, _ = m.update(m.load()())
		if m.err != nil || len(m.known) != 10_000 {
			t.Fatalf("%s: %v, %d keys", about, m.err, len(m.known))
		}
		view := fits(t, m, 80, 24)
		n := int64(0)
		for name, c := range redistest.Commandstats(t, rdb) {
			n += c - before[name]
		}
		t.Logf("%s takes %v and %d commands", about, time.Since(began), n)
		if about == "the next" && n > 200 {
			t.Errorf("%s takes %d commands", about, n)
		}
		if !strings.Contains(view, "exports") {
			t.Errorf("it shows\n%s", view)
		}
	}
}
