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
	"github.com/leasehold-go/leasehold/internal/keys"
)

// predecessors are the leases of the key that an operator revoked. Revoking hands a lease
// on at once, while the program under it has yet to be stopped. Its tool notes in the audit
// stream that the program has ended; until then, or until the lease would have ended, the
// next program does not start. Programs under permits run beside each other: there the next
// one waits only where the revoked ones and those that hold permits are more than the limit.
type predecessors struct {
	rdb    redis.UniversalClient
	stream string
}

const (
	// ended is what a tool notes of a lease: its program has ended.
	ended = "ended"
	// mostRevoked is how many entries of the audit stream are looked at, the latest first.
	mostRevoked = 100
	// noteBound is how long a look at the stream, or an entry, may take.
	noteBound = 5 * time.Second
)

func predecessorsOf(rdb redis.UniversalClient, o Options) (predecessors, error) {
	f := keys.Family{Prefix: o.Prefix, Kind: keys.Mutex, Name: o.Mutex}
	if o.Mutex == "" {
		f.Kind, f.Name = keys.Semaphore, o.Semaphore
	}
	res, err := f.Resource(o.Key)
	return predecessors{rdb, res.Part("audit")}, err
}

// running says how many permits were revoked under which programs may still run, and for
// how long the last of them may go on.
func (p predecessors) running(ctx context.Context) (permits int, longest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, noteBound)
	defer cancel()
	pipe := p.rdb.Pipeline()
	clock, latest := pipe.Time(ctx), pipe.XRevRangeN(ctx, p.stream, "+", "-", mostRevoked)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) { // nil: miniredis says so of no stream
		return 0, 0, err
	}
	over := map[any]bool{}
	for _, entry := range latest.Val() {
		switch id := entry.Values["id"]; entry.Values["what"] {
		case ended:
			over[id] = true
		case "lease":
			if lasts := ends(entry).Sub(clock.Val()); lasts > 0 && !over[id] {
				permits += int(number(entry.Values["permits"]))
				longest = max(longest, lasts)
			}
		}
	}
	return permits, longest, nil
}

// ends is when a revoked lease would have ended, by the server's clock, which the ID of the
// entry begins with.
func ends(entry redis.XMessage) time.Time {
	at, _, _ := strings.Cut(entry.ID, "-")
	return time.UnixMilli(number(at) + number(entry.Values["remains"]))
}

// number reads a field; 0 where it is none.
func number(field any) int64 {
	text, _ := field.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// await returns when none of them is in the way any more. The end of ctx, which is that of
// the lease, ends it before; with try it does not wait. Where the server refuses to read
// the stream, as it does without the right to, await says so and goes on.
func (p predecessors) await(ctx context.Context, h *handle, try bool) error {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		permits, remains, err := p.running(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case isRefused(err):
			warn("a program under a revoked lease may still run: %v", err)
			return nil
		case err != nil:
			remains = pause // it is asked again, for as long as the lease is held
		case permits == 0 || h.hasRoom != nil && h.hasRoom(ctx, permits):
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

// giveBack gives a lease back after its program has ended, or was never started. Where the
// lease was revoked it notes that; without the note the next program waits until the lease
// would have ended.
func (p predecessors) giveBack(l *held) error {
	err := l.release()
	if errors.Is(err, leasehold.ErrRevoked) {
		p.noteEnded(l.ID())
	}
	return err
}

func (p predecessors) noteEnded(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), noteBound)
	defer cancel()
	err := p.rdb.XAdd(ctx, &redis.XAddArgs{
		Stream: p.stream, NoMkStream: true, Values: []string{"id", id, "what", ended},
	}).Err()
	if err != nil && !errors.Is(err, redis.Nil) { // nil: there is no stream any more
		warn("the next program waits until the revoked lease would have ended: %v", err)
	}
}

func isRefused(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "WRONGTYPE"))
}

func warn(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "leasehold: "+format+"\n", args...)
}
