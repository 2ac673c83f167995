//go:build unix

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

const (
	// atOnce bounds a tool that is not to wait for a turn: Redis has to answer by then.
	atOnce = time.Second
	// giveUp is how long a tool that has waited long enough, or got a signal, stays for
	// what is under way: a lease that is granted in this moment is given back. That takes two round trips.
	giveUp = 900 * time.Millisecond
)

func openFamily(ctx context.Context, dial func(context.Context) ([]redis.UniversalClient, error), o Options) (*family, error) {
	rdbs, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	f := &family{rdbs: rdbs}
	if err := f.open(o); err != nil {
		f.closeClients()
		return nil, failed(CodeUsage, err)
	}
	return f, nil
}

// close gives back all that this process holds in Redis.
func (f *family) close(o Options) {
	if f.handle == nil {
		return
	}
	bound := closeBound
	if o.Wait == 0 || o.Quorum { // what servers that are silent know ends by itself
		bound = closeSoon
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_ = f.handle.Close(ctx)
	f.closeClients()
}

func (f *family) closeClients() {
	for _, rdb := range f.rdbs {
		_ = rdb.Close()
	}
}

var errWaitOver = errors.New("the time to wait is over")

// await opens the family and waits for the lease, as long as it may or until a signal ends the tool. It returns
// in time whatever Redis does; f becomes what was opened, unless that hangs itself.
func await(open func(context.Context) (*family, error), f *family, o Options, signals <-chan os.Signal) (*held, error) {
	type outcome struct {
		f   *family
		l   *held
		err error
	}
	// The lease's Context comes from this ctx, so that it must not end once the
	// lease is held: no time-out of the wait may reach it.
	ctx, cancelCause := context.WithCancelCause(context.Background())
	cancel := func(cause error) { cancelCause(cause) } // by a name that vet does not follow: the lease needs ctx
	done := make(chan outcome, 1)
	go func() {
		var out outcome
		if out.f, out.err = open(ctx); out.err == nil {
			out.l, out.err = take(ctx, out.f, o)
		}
		done <- out
	}()
	var over, hangs <-chan time.Time
	if o.Wait >= 0 {
		over = time.After(cmp.Or(o.Wait, atOnce))
	}
	var sig os.Signal
	for {
		select {
		case got := <-done:
			if got.f != nil {
				*f = *got.f
			}
			if got.l != nil && ctx.Err() != nil { // it was granted in that moment
				_ = f.giveBack(got.l)
				got.err = errWaitOver
			}
			if sig != nil {
				return nil, diedOf(sig)
			}
			if got.err != nil {
				return nil, refused(got.err, o)
			}
			return got.l, nil
		case s := <-signals:
			if sig == nil && slices.Contains(ending, s.(syscall.Signal)) {
				sig, hangs = s, time.After(giveUp)
				cancel(nil)
			}
		case <-over:
			hangs = time.After(giveUp)
			cancel(errWaitOver)
		case <-hangs:
			if sig != nil {
				return nil, diedOf(sig)
			}
			return nil, failed(CodeUnreachable, errSilent)
		}
	}
}

// take waits for the lease, and until no program under a lease that was revoked before runs any more.
func take(ctx context.Context, f *family, o Options) (*held, error) {
	l, err := f.acquire(ctx, o.Wait == 0)
	if err != nil {
		return nil, err
	}
	err = f.awaitRevoked(l.Context(), o.Wait == 0)
	if err == nil {
		err = lengthen(ctx, l, o)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = f.giveBack(l)
		return nil, err
	}
	return l, nil
}

var errSilent = fmt.Errorf("%w: Redis has not answered in time, and the program did not run; check its address (--redis, $REDIS_URL) and the network", leasehold.ErrUnavailable)

// refused gives the reason why there is no lease its exit code.
func refused(err error, o Options) error {
	switch {
	case errors.As(err, new(*Error)), errors.Is(err, errComplete):
		return err
	case o.Wait == 0 && errors.Is(err, errWaitOver): // it waited for Redis alone, and may have been granted the lease
		return failed(CodeUnreachable, errSilent)
	case errors.Is(err, leasehold.ErrLost):
		return failed(CodeLost, err)
	case errors.Is(err, leasehold.ErrBusy), errors.Is(err, leasehold.ErrQueueFull), errors.Is(err, errWaitOver):
		why, kind, show := err.Error(), "mutex", "show"
		if busy, ok := errors.AsType[*leasehold.BusyError](err); ok {
			why = fmt.Sprintf("%d of %d in use, %d waiting", busy.InUse, busy.Limit, busy.Waiting)
		}
		if o.Mutex == "" {
			kind = "semaphore"
		}
		if o.Quorum {
			show += " --redis URL" // of any of the servers
		}
		if o.Prefix != "" {
			show += " --prefix " + text.Quoted(o.Prefix)
		}
		return failed(CodeConflict, fmt.Errorf("%s %s/%s was not free in time, and the program did not run: %s; leasehold %s --%[1]s %[6]s --key %[7]s names its holder",
			kind, text.Safe(o.Mutex+o.Semaphore), text.Safe(o.Key), why, show, text.Quoted(o.Mutex+o.Semaphore), text.Quoted(o.Key)))
	case errors.Is(err, context.Canceled): // the wait is over, and only Redis can say that another one has the lease
		return failed(CodeUnreachable, errSilent)
	case errors.Is(err, leasehold.ErrUnavailable):
		return failed(CodeUnreachable, err)
	}
	return failed(CodeTool, err)
}

// lengthen makes a lease as long as it is to be. A lease that another process handed over
// lasts two seconds until its first renewal: the grace may be longer than that, and
// then the guard would stop the program before it starts.
func lengthen(ctx context.Context, l *held, o Options) error {
	if time.Until(l.Deadline()) > o.TTL*2/3 {
		return nil
	}
	return l.Extend(ctx, o.TTL)
}
