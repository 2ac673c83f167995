package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/semaphore"
)

// setLimit is what set-limit is to do.
type setLimit struct {
	family, key string
	hashed      bool
	total       bool // of the family, not of a key
	hasTotal    bool
	n           int
}

func (a *app) setLimit() *cobra.Command {
	var x setLimit
	c := &cobra.Command{
		Use:   "set-limit --semaphore NAME (--key KEY | --total) N",
		Short: "Set the limit of a key or the total of a family, fleet-wide",
		Long: `set-limit sets how many permits of a key may be in use, 1 to 100000, for the whole
fleet, in place of what each process is configured with. With --total it sets the
total of a family over all its keys, 1 to 1000000. 0 goes back to what the processes
are configured with.

More than before is granted to waiters at once. Less takes no permit away: nothing is
granted until the use is below it. The limit is kept in Redis without an expiry until
it is set to 0; a server that loses its data loses it.

The keys of a family with a total have limits of their own kind. The command sees
that by what is in Redis; where nothing of the family is there yet, say --has-total.

Exit codes: 0 it is set; 64 bad arguments; 69 Redis is out of reach, and it may have
been set.`,
		Example: `  leasehold set-limit --semaphore exports --key acme 10
  leasehold set-limit --semaphore exports --key acme 0
  leasehold set-limit --semaphore exports --total 200`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if x.n, err = strconv.Atoi(args[0]); err != nil {
				return usagef("set-limit: the limit is %q; want a number", args[0])
			}
			if x.family == "" || (x.key == "") != x.total {
				return usagef("set-limit: want --semaphore NAME, and --key KEY or --total")
			}
			rdb, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer rdb.Close()
			ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
			defer cancel()
			if err := x.set(ctx, rdb, a.prefix); err != nil {
				return settingFailed(err)
			}
			a.limitSet(x)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&x.family, "semaphore", "", "the family")
	f.StringVar(&x.key, "key", "", "the key")
	f.BoolVar(&x.hashed, "hashed", false, "the family has HashKeys")
	f.BoolVar(&x.total, "total", false, "set the total of the family")
	f.BoolVar(&x.hasTotal, "has-total", false, "the family has a total, though nothing of it is in Redis yet")
	return c
}

// set does it by a handle as the processes of the family have one.
func (x *setLimit) set(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	cfg := semaphore.Config{Name: x.family, Prefix: prefix, Limit: 1, HashKeys: x.hashed}
	if !x.hasTotal && !x.total {
		there, err := totalled(ctx, rdb, prefix, x.family)
		if err != nil {
			return err
		}
		x.hasTotal = there
	}
	if x.hasTotal || x.total {
		cfg.Total = 1 // that it has one decides which keys of Redis are its; the figure is for requests alone
	}
	s, err := semaphore.New(rdb, cfg)
	if err != nil {
		return usage(err)
	}
	if x.total {
		err = s.SetTotal(ctx, x.n)
	} else {
		err = s.SetLimit(ctx, x.key, x.n)
	}
	// Where thousands wait the rest is granted in the background: not without us.
	if closing := s.Close(ctx); err == nil && closing != nil {
		err = closing
	}
	return err
}

// totalled says whether something of a family with a total is in Redis.
func totalled(ctx context.Context, rdb redis.UniversalClient, prefix, family string) (bool, error) {
	r := listing.Of(prefix, keys.Semaphore, family, "", true)
	n, err := rdb.Exists(ctx, r.Part("holders"), r.Part("queue"), r.Part("limits"), r.Part("alive"), r.Part("turns")).Result()
	return n > 0, err
}

func settingFailed(err error) error {
	switch {
	case errors.Is(err, leasehold.ErrInvalid):
		return usage(err)
	case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return &run.Error{Code: run.CodeUnreachable, Err: fmt.Errorf("%w; it may have been set", err)}
	}
	return unreachable(err)
}

func (a *app) limitSet(x setLimit) {
	what, name := "The limit of", text.Safe(x.family)
	if x.total {
		what = "The total of"
	} else {
		name += "/" + text.Safe(x.key)
	}
	if x.n == 0 {
		fmt.Fprintf(a.out, "%s %s is what each process is configured with.\n", what, name)
		return
	}
	fmt.Fprintf(a.out, "%s %s is %d.\n", what, name, x.n)
}
