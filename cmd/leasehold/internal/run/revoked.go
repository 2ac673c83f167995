package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

// The predecessors are the leases of the key that an operator revoked. Revoking hands a lease
// on at once, while the program under it has yet to be stopped. Its tool notes in the audit
// stream that the program has ended; until then, or until the lease would have ended, the
// next program does not start. Programs under permits run beside each other: there the next
// one waits only where the revoked ones and those that hold permits are more than the limit.
//
// The servers of a quorum each have such a stream. What one of them says counts, and a majority must
// answer: so many have noted the revocation.

const (
	// ended is what a tool notes of a lease: its program has ended.
	ended = "ended"
	// mostRevoked is how many entries of the audit stream are looked at, the latest first.
	mostRevoked = 100
	// noteBound is how long a look at the stream, or an entry, may take.
	noteBound = 5 * time.Second
)

// running says how many permits were revoked under which programs may still run, and for
// how long the last of them may go on.
func (f *family) running(ctx context.Context) (permits int, longest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, noteBound)
	defer cancel()
	type read struct {
		entries []redis.XMessage
		clock   time.Time
		err     error
	}
	reads := make(chan read, len(f.rdbs))
	for _, rdb := range f.rdbs {
		go func() {
			pipe := rdb.Pipeline()
			clock, latest := pipe.Time(ctx), pipe.XRevRangeN(ctx, f.stream, "+", "-", mostRevoked)
			_, err := pipe.Exec(ctx)
			if errors.Is(err, redis.Nil) { // miniredis says so of no stream
				err = nil
			}
			reads <- read{latest.Val(), clock.Val(), err}
		}()
	}
	need := len(f.rdbs)/2 + 1
	over, revoked := map[any]bool{}, map[any]redis.XMessage{}
	lasts := map[any]time.Duration{}
	for answered, open := 0, len(f.rdbs); answered < need; open-- {
		if open == 0 {
			return 0, 0, err
		}
		var r read
		select {
		case r = <-reads:
		case <-ctx.Done(): // the client would go on reading, and the lease is to be given back in time
			return 0, 0, ctx.Err()
		}
		if r.err != nil {
			err = r.err
			continue
		}
		answered++
		for _, entry := range r.entries {
			switch id := entry.Values["id"]; entry.Values["what"] {
			case ended:
				over[id] = true
			case "lease":
				// It would have ended then, by the server's clock, which the ID of the entry begins with.
				at, _, _ := strings.Cut(entry.ID, "-")
				ends := time.UnixMilli(number(at) + number(entry.Values["remains"]))
				revoked[id], lasts[id] = entry, max(lasts[id], ends.Sub(r.clock))
			}
		}
	}
	for id, entry := range revoked {
		if lasts[id] > 0 && !over[id] {
			permits += int(number(entry.Values["permits"]))
			longest = max(longest, lasts[id])
		}
	}
	return permits, longest, nil
}

// number reads a field; 0 where it is none.
func number(field any) int64 {
	digits, _ := field.(string)
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// awaitRevoked returns when none of them is in the way any more. The end of ctx, which is that of
// the lease, ends it before; with try it does not wait. Where the server refuses to read
// the stream, as it does without the right to, it says so and goes on.
func (f *family) awaitRevoked(ctx context.Context, try bool) error {
	answered := false
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		permits, remains, err := f.running(ctx)
		answered = answered || err == nil
		switch {
		case !answered && errors.Is(context.Cause(ctx), errWaitOver): // nothing says that the lease was not free
			return errSilent
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "WRONGTYPE")):
			warn("a program under a revoked lease may still run: %v", err)
			return nil
		case err != nil:
			remains = pause // it is asked again, for as long as the lease is held
		case permits == 0 || f.hasRoom != nil && f.hasRoom(ctx, permits):
			return nil
		case try:
			return fmt.Errorf("%w: the program under a revoked lease may run for another %v", leasehold.ErrBusy, remains)
		}
		select {
		case <-time.After(min(pause, remains)):
		case <-ctx.Done():
		}
	}
}

// giveBack gives a lease back after its program has ended, or was never started. Where the lease was revoked it
// notes that; without the note the next program waits until the lease would have ended.
func (f *family) giveBack(l *held) error {
	err := l.release()
	if errors.Is(err, leasehold.ErrRevoked) {
		f.noteEnded(l.ID())
	}
	return err
}

func (f *family) noteEnded(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), noteBound)
	defer cancel()
	noted := make(chan error, len(f.rdbs))
	for _, rdb := range f.rdbs {
		go func() {
			err := rdb.XAdd(ctx, &redis.XAddArgs{
				Stream: f.stream, NoMkStream: true, Values: []string{"id", id, "what", ended},
			}).Err()
			if errors.Is(err, redis.Nil) { // there is no stream any more, or none came to be there
				err = nil
			}
			noted <- err
		}()
	}
	var failed []error
	for range f.rdbs {
		if err := <-noted; err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > (len(f.rdbs)-1)/2 { // else each majority has a server that noted it
		warn("the next program waits until the revoked lease would have ended: %v", failed[0])
	}
}

func warn(format string, args ...any) {
	fmt.Fprintln(os.Stderr, text.Prose(fmt.Sprintf("leasehold: "+format, args...)))
}
