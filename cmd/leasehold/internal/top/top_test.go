package top

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type terminal struct {
	tcell.SimulationScreen
	t             *testing.T
	width, height int
	done          chan error

	mu    sync.Mutex
	cells []tcell.SimCell
	shows int
}

// Init gives the screen its size, each time that it is called.
func (x *terminal) Init() error {
	defer x.SetSize(x.width, x.height)
	return x.SimulationScreen.Init()
}

// Show keeps a copy of what is shown.
func (x *terminal) Show() {
	x.SimulationScreen.Show()
	x.mu.Lock()
	defer x.mu.Unlock()
	cells, _, _ := x.GetContents()
	x.cells, x.shows = append([]tcell.SimCell(nil), cells...), x.shows+1
}

// opened runs it until the test ends.
func opened(t *testing.T, rdb redis.UniversalClient, prefix string, width, height int) *terminal {
	t.Helper()
	x := &terminal{SimulationScreen: tcell.NewSimulationScreen("UTF-8"), t: t, width: width, height: height, done: make(chan error, 1)}
	redistest.WantErr(t, x.Init())
	ctx, cancel := context.WithCancel(t.Context())
	go func() { x.done <- Run(ctx, listing.New(rdb, prefix), 50*time.Millisecond, x); close(x.done) }()
	t.Cleanup(func() { cancel(); <-x.done })
	return x
}

func (x *terminal) lines() (all []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for at := 0; at < len(x.cells); at += x.width {
		line := ""
		for _, c := range x.cells[at : at+x.width] {
			line += string(c.Runes)
		}
		all = append(all, line)
	}
	return all
}

func (x *terminal) sees(what string, is func(all string) bool) {
	x.t.Helper()
	defer func() {
		if x.t.Failed() {
			x.t.Logf("it shows\n%s", strings.Join(x.lines(), "\n"))
		}
	}()
	redistest.Eventually(x.t, what, func() bool { return is(strings.Join(x.lines(), "\n")) })
}

func (x *terminal) has(texts ...string) {
	x.t.Helper()
	x.sees(strings.Join(texts, " … "), func(all string) bool {
		for _, text := range texts {
			_, behind, ok := strings.Cut(all, text)
			if all = behind; !ok {
				return false
			}
		}
		return true
	})
}

func (x *terminal) lacks(text string) {
	x.t.Helper()
	x.sees("no "+text, func(all string) bool { return all != "" && !strings.Contains(all, text) })
}

// types presses keys: those with a name, or the characters of a word.
func (x *terminal) types(all ...string) {
	names := map[string]tcell.Key{"enter": tcell.KeyEnter, "esc": tcell.KeyEscape, "down": tcell.KeyDown, "ctrl-c": tcell.KeyCtrlC}
	for _, word := range all {
		if k, ok := names[word]; ok {
			x.InjectKey(k, 0, 0)
			continue
		}
		for _, r := range word {
			x.InjectKey(tcell.KeyRune, r, 0)
		}
	}
}

// fill makes n permits of the family exports, each of a key of its own, and queues of the first three.
func fill(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	now := time.Now()
	pipe := rdb.Pipeline()
	for i := range n {
		base := fmt.Sprintf("leasehold:sem:{exports:key-%05d}:", i)
		pipe.ZAdd(t.Context(), base+"holders", redis.Z{Score: float64(now.Add(5 * time.Minute).UnixMilli()), Member: "AbCdEfGh_-0123456789xy.1.1.300000.5"})
		for w := range min(3, max(0, 3-i)) {
			name := fmt.Sprintf("AbCdEfGh_-0123456789xy.%d.1.300000.5", 10+w)
			pipe.ZAdd(t.Context(), base+"queue", redis.Z{Score: float64(now.Add(-time.Duration(10*i+w) * time.Second).UnixMicro()), Member: name})
			pipe.ZAdd(t.Context(), base+"alive", redis.Z{Score: float64(now.Add(time.Minute).UnixMilli()), Member: name})
		}
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
}

// Names of others do nothing, and do not push what matters off a small terminal.
func TestItFitsEveryTerminal(t *testing.T) {
	rdb := redistest.MiniClient(t)
	fill(t, rdb, 3)
	ends := float64(time.Now().Add(time.Minute).UnixMilli())
	for _, name := range []string{strings.Repeat("family", 40) + ":k", "x:" + strings.Repeat("日本%1B[2J", 40), "x:[red]"} {
		rdb.ZAdd(t.Context(), "leasehold:mtx:{"+name+"}:holders", redis.Z{Score: ends, Member: "AbCdEfGh_-0123456789xy.1.1.60000.1"})
	}
	for _, size := range [][2]int{{80, 24}, {40, 10}, {200, 60}, {100, 5}} {
		x := opened(t, rdb, "", size[0], size[1])
		x.has("leasehold", "KEY", "USE", "key-00000", "1/5", "3", "q quit")
		x.types("/x/", "enter")
		x.has(`[red]`, "1/1", `日`, "1/1")
		x.types("/", "esc", "/nothing has this", "enter")
		x.lacks("1/1")
		redistest.Expect(t, len(x.lines()), size[1], "%d lines")
	}
}

func TestKeysMoveSortAndFilter(t *testing.T) {
	rdb := redistest.MiniClient(t)
	fill(t, rdb, 60)
	x := opened(t, rdb, "", 120, 24)
	x.has("60 of 60 keys, by attention", "key-00000", "key-00001", "key-00002", "key-00003")
	x.types("s")
	x.has("by wait", "key-00002", "key-00001", "key-00000", "key-00003")
	x.types("jjj", "down", "k") // on key-00003, which stays chosen in another order
	x.types("sssss")
	x.has("by attention")
	x.types("enter")
	x.has("semaphore exports/key-00003", "1 of 5 in use")
	x.types("esc", "/key-0004", "enter")
	x.has("10 of 60 keys", "with key-0004")
	x.types("esc")
	x.has("60 of 60 keys")
	x.types("G", "enter")
	x.has("exports/key-00059")
	x.types("q")
	redistest.WantErr(t, redistest.Get(t, "the end", x.done))
}

// A look finds what is held, and the next one what has become of it.
func TestLooksFollowTheLeases(t *testing.T) {
	redistest.Each(t, func(t *testing.T, target redistest.Target) {
		rdb, prefix := target.Client(t), redistest.Name(t)
		mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: prefix, Label: "web-1:17"}))(t)
		lock := redistest.Must(mtx.Lock(t.Context(), "nightly"))(t)
		waited := make(chan *mutex.Lock, 1)
		go func() {
			l, err := mtx.Lock(t.Context(), "nightly")
			redistest.WantErr(t, err)
			waited <- l
		}()
		x := opened(t, rdb, prefix, 80, 24)
		x.has("nightly", "1/1")
		x.types("enter")
		x.has("mutex jobs/nightly", "1 of 1 in use, 1 waiting", "HELD FOR", lock.ID(), "web-1:17", "WAITER", "POSITION")
		redistest.WantErr(t, lock.Unlock())
		next := redistest.Get(t, "the next holder", waited)
		x.lacks("WAITER")
		x.has(next.ID())
		redistest.WantErr(t, next.Unlock())
		x.has("0 of 1 in use")
		x.types("esc")
		x.has("nothing is held")
		x.types("i")
		x.has("nightly", "0/1")
		redistest.WantErr(t, mtx.Close(t.Context()))
	})
}

// Neither a Redis that hangs nor one that is away keeps the user.
func TestUserCanQuit(t *testing.T) {
	for _, key := range []string{"q", "ctrl-c"} {
		rdb := redistest.MiniClient(t)
		fill(t, rdb, 1)
		p := redistest.NewProxy(t, rdb.Options().Addr)
		x := opened(t, p.Client(func(o *redis.Options) { o.MaxRetries = -1 }), "", 80, 24)
		x.has("key-00000")
		p.Cut(true, true)
		x.types(key)
		redistest.WantErr(t, redistest.Get(t, "the end by "+key, x.done))
	}
}

// Among many keys the first look takes its time; those after it look at what is shown.
func TestManyKeysAreLookedAtSoon(t *testing.T) {
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	fill(t, rdb, 10_000)
	began := time.Now()
	x := opened(t, rdb, "", 80, 24)
	x.has("10000 of 10000 keys", "key-00000")
	t.Logf("the first look takes %v", time.Since(began))
	looks := func() int { x.mu.Lock(); defer x.mu.Unlock(); return x.shows }
	before, from := redistest.Commandstats(t, rdb), looks()
	redistest.Eventually(t, "some looks", func() bool { return looks() >= from+5 })
	n := int64(0)
	after, seen := redistest.Commandstats(t, rdb), int64(looks()-from)
	for name, c := range after {
		n += c - before[name]
	}
	redistest.Check(t, n <= 200*(seen+1), "%d looks take %d commands", seen, n)
}
