package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/mutex"
)

// staleOutcome is how the second part ended.
type staleOutcome struct {
	tried    bool
	old, new uint64 // tokens of the first holder and of the one after it
	result   string // of the first holder's late write
	value    string // what the guard holds after it
}

// staleShow is the second part: A locks and writes, and is stopped past its
// lease; B locks and writes; A goes on where it was, which is in a write.
func staleShow(ctx context.Context, scr *screen, srv *demo.Server, name string) (out staleOutcome, err error) {
	scr.print("\nA stale lock holder: %s is locked for %v, renewed while its holder runs", order, lockTTL)
	if !demo.CanPause {
		scr.print("  left out: this system has no SIGSTOP to pause a process with")
		return out, nil
	}
	out.tried = true
	f := newFleet(ctx, "writer")
	defer f.close()
	const a, b = 1, 2

	if out.old, err = f.lockAndWrite(scr, a, srv, name); err != nil {
		return out, err
	}
	if err := demo.Pause(f.kids[a].cmd.Process); err != nil {
		return out, fmt.Errorf("stop A: %w", err)
	}
	scr.say("A stopped (SIGSTOP), so that it cannot renew; B asks for the lock")
	if out.new, err = f.lockAndWrite(scr, b, srv, name); err != nil {
		return out, err
	}

	// The order lies in A's stdin when A wakes up: it writes at once.
	if _, err := fmt.Fprintln(f.kids[a].stdin, "write"); err != nil {
		return out, err
	}
	if err := demo.Resume(f.kids[a].cmd.Process); err != nil {
		return out, fmt.Errorf("continue A: %w", err)
	}
	late, err := f.await(a, wrote)
	if err != nil {
		return out, err
	}
	out.result = late.Result
	scr.say(fmt.Sprintf("A continued (SIGCONT), writes with token %d: %s", out.old, late.Result))

	rdb, err := demo.Client(srv.URL)
	if err != nil {
		return out, err
	}
	defer rdb.Close()
	guard, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: name})
	if err != nil {
		return out, err
	}
	if out.value, _, err = guard.Get(ctx, order); err != nil {
		return out, err
	}
	scr.say(fmt.Sprintf("the value is %q", out.value))
	f.stop()
	for range f.kids {
		if e, err := f.await(anybody, gone); err != nil {
			return out, err
		} else if e.Fault != "" {
			return out, fmt.Errorf("%s ended: %s", writerName(e.Child), e.Fault)
		}
	}
	return out, nil
}

// lockAndWrite starts a writer and waits for its first write.
func (f *fleet) lockAndWrite(scr *screen, num int, srv *demo.Server, name string) (token uint64, err error) {
	if err := f.start(num, srv, name); err != nil {
		return 0, err
	}
	lock, err := f.await(num, locked)
	if err != nil {
		return 0, err
	}
	write, err := f.await(num, wrote)
	if err != nil {
		return 0, err
	}
	scr.say(fmt.Sprintf("%s locked with token %d, writes: %s", writerName(num), lock.Token, write.Result))
	if write.Result != accepted {
		return 0, fmt.Errorf("the write of %s, which held the lock: %s", writerName(num), write.Result)
	}
	return lock.Token, nil
}

const anybody = 0

// await takes events until child num reports k. The others report nothing
// meanwhile that is asked for later.
func (f *fleet) await(num int, k kind) (event, error) {
	limit := time.After(15 * time.Second)
	for {
		select {
		case e := <-f.events:
			switch {
			case e.Kind == k && (e.Child == num || num == anybody):
				return e, nil
			case e.Kind == badClock:
				return e, errClock
			case e.Kind == gone:
				return e, fmt.Errorf("%s ended by itself: %s", writerName(e.Child), e.Fault)
			}
		case <-limit:
			return event{}, fmt.Errorf("the lock's writers: not %s after 15 s", k)
		case <-f.ctx.Done():
			return event{}, f.ctx.Err()
		}
	}
}
