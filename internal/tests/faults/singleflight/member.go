package singleflight

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
)

// childOrder is a call of Fetch that a child process is to make.
type childOrder struct {
	ID    int
	Key   string
	Load  time.Duration // how long its loader takes, whatever its ctx says
	Value string

	UntilTold bool   // its loader ends when an order with its ID and Finish comes
	Finish    bool   // this is that order
	Asks      string // its loader then asks for this key, and returns what it gets
	Leave     bool   // the caller of the call with this ID leaves
}

// childEvent is what a child says about it: its load "began" or "ended" (then
// Err is why its ctx had ended), its call "got" something.
type childEvent struct {
	ID                 int
	What               string
	At                 int64 // µs
	Value, Source, Err string
}

func init() { redistest.RegisterChild("fault member", memberChild) }

func memberChild(args []string) int {
	var setup crowdSetup
	if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
		panic(err)
	}
	g, end := setup.open()
	defer end()
	var mu sync.Mutex
	say := func(ev childEvent, err error) {
		mu.Lock()
		defer mu.Unlock()
		ev.At = time.Now().UnixMicro()
		if err != nil {
			ev.Err = err.Error()
		}
		out, err := json.Marshal(ev)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(out))
	}
	finish, leave := map[int]chan struct{}{}, map[int]context.CancelFunc{}
	say(childEvent{What: "ready"}, nil)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o childOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			panic(err)
		}
		if o.Finish {
			close(finish[o.ID])
			continue
		}
		if o.Leave {
			leave[o.ID]()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		leave[o.ID] = cancel
		told := make(chan struct{})
		if o.UntilTold {
			finish[o.ID] = told
		} else {
			close(told)
		}
		go func() {
			r, err := g.Fetch(ctx, o.Key, func(ctx context.Context) (string, error) {
				say(childEvent{ID: o.ID, What: "began"}, nil)
				time.Sleep(o.Load)
				<-told
				if o.Asks != "" {
					return g.Do(ctx, o.Asks, loaderOf(o.Value))
				}
				say(childEvent{ID: o.ID, What: "ended"}, context.Cause(ctx))
				return o.Value, nil
			})
			say(childEvent{ID: o.ID, What: "got", Value: r.Value, Source: r.Source.String()}, err)
		}()
	}
	return 0
}

// fleetMember is a child process that fetches what it is told to.
type fleetMember struct {
	*redistest.Child
	fleet *loadFleet
}

// loadFleet is some of them, and what they said.
type loadFleet struct {
	tb      testing.TB
	members []*fleetMember

	mu     sync.Mutex
	events []childEvent
}

func newFaultFleet(tb testing.TB, setup crowdSetup, n int) *loadFleet {
	tb.Helper()
	arg, err := json.Marshal(setup)
	if err != nil {
		tb.Fatal(err)
	}
	f := &loadFleet{tb: tb}
	var readers sync.WaitGroup
	tb.Cleanup(readers.Wait)
	for range n {
		m := &fleetMember{redistest.StartChild(tb, "fault member", string(arg)), f}
		f.members = append(f.members, m)
		readers.Go(func() {
			for {
				line, err := m.LineWithin(time.Hour)
				var ev childEvent
				if err == nil {
					err = json.Unmarshal([]byte(line), &ev)
				}
				if err != nil {
					return // it was killed
				}
				f.mu.Lock()
				f.events = append(f.events, ev)
				f.mu.Unlock()
			}
		})
	}
	harness.Until(tb, 20*time.Second, func() error {
		if got := len(f.all("ready")); got != n {
			return fmt.Errorf("%d children of %d are ready", got, n)
		}
		return nil
	})
	return f
}

func (m *fleetMember) fetch(o childOrder) {
	m.fleet.tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		m.fleet.tb.Fatal(err)
	}
	m.Send(string(text))
}

// all lists what was said of a kind.
func (f *loadFleet) all(what string) []childEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	var some []childEvent
	for _, ev := range f.events {
		if ev.What == what {
			some = append(some, ev)
		}
	}
	return some
}

// said waits until a call's event is there.
func (f *loadFleet) said(what string, id int) (said childEvent) {
	f.tb.Helper()
	harness.Until(f.tb, 20*time.Second, func() error {
		for _, ev := range f.all(what) {
			if ev.ID == id {
				said = ev
				return nil
			}
		}
		return fmt.Errorf("call %d has not %s", id, what)
	})
	return said
}
