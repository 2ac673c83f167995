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

// faultOrder is a call of Fetch that a child process is to make.
type faultOrder struct {
	ID    int
	Key   string
	Load  time.Duration // how long its loader takes, whatever its ctx says
	Value string

	UntilTold bool // its loader ends when an order with its ID and Finish comes
	Finish    bool // this is that order
}

// faultEvent is what a child says about it: its load "began" or "ended" (then
// Err is why its ctx had ended), its call "got" something.
type faultEvent struct {
	ID                 int
	What               string
	At                 int64 // µs
	Value, Source, Err string
}

func init() { redistest.RegisterChild("fault member", faultMemberChild) }

func faultMemberChild(args []string) int {
	var setup faultSetup
	if err := json.Unmarshal([]byte(args[0]), &setup); err != nil {
		panic(err)
	}
	g, end := setup.open()
	defer end()
	var mu sync.Mutex
	say := func(ev faultEvent, err error) {
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
	finish := map[int]chan struct{}{}
	say(faultEvent{What: "ready"}, nil)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o faultOrder
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			panic(err)
		}
		if o.Finish {
			close(finish[o.ID])
			continue
		}
		told := make(chan struct{})
		if o.UntilTold {
			finish[o.ID] = told
		} else {
			close(told)
		}
		go func() {
			r, err := g.Fetch(context.Background(), o.Key, func(ctx context.Context) (string, error) {
				say(faultEvent{ID: o.ID, What: "began"}, nil)
				time.Sleep(o.Load)
				<-told
				say(faultEvent{ID: o.ID, What: "ended"}, context.Cause(ctx))
				return o.Value, nil
			})
			say(faultEvent{ID: o.ID, What: "got", Value: r.Value, Source: r.Source.String()}, err)
		}()
	}
	return 0
}

// faultMember is a child process that fetches what it is told to.
type faultMember struct {
	*redistest.Child
	fleet *faultFleet
}

// faultFleet is some of them, and what they said.
type faultFleet struct {
	tb      testing.TB
	members []*faultMember

	mu     sync.Mutex
	events []faultEvent
}

func newFaultFleet(tb testing.TB, setup faultSetup, n int) *faultFleet {
	tb.Helper()
	arg, err := json.Marshal(setup)
	if err != nil {
		tb.Fatal(err)
	}
	f := &faultFleet{tb: tb}
	var readers sync.WaitGroup
	tb.Cleanup(readers.Wait)
	for range n {
		m := &faultMember{redistest.StartChild(tb, "fault member", string(arg)), f}
		f.members = append(f.members, m)
		readers.Go(func() {
			for {
				line, err := m.LineWithin(time.Hour)
				var ev faultEvent
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

func (m *faultMember) fetch(o faultOrder) {
	m.fleet.tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		m.fleet.tb.Fatal(err)
	}
	m.Send(string(text))
}

// all lists what was said of a kind.
func (f *faultFleet) all(what string) []faultEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	var some []faultEvent
	for _, ev := range f.events {
		if ev.What == what {
			some = append(some, ev)
		}
	}
	return some
}

// said waits until a call's event is there.
func (f *faultFleet) said(what string, id int) (said faultEvent) {
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
