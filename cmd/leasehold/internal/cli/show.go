package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// target says which key a command is about.
type target struct {
	families map[string]*string // by the word for the kind; one has a name
	key      string
	hashed   bool
}

func (x *target) flags(c *cobra.Command) {
	f := c.Flags()
	x.families = map[string]*string{
		"mutex":     f.String("mutex", "", "family of locks"),
		"semaphore": f.String("semaphore", "", "family of permits"),
		"cache":     f.String("cache", "", "family of cached values"),
		"guard":     f.String("guard", "", "family of guarded values"),
	}
	f.StringVar(&x.key, "key", "", "the key; of a family with a total, none is the family")
	f.BoolVar(&x.hashed, "hashed", false, "the family has HashKeys: --key is hashed as it does")
	c.MarkFlagsOneRequired("mutex", "semaphore", "cache", "guard")
	c.MarkFlagsMutuallyExclusive("mutex", "semaphore", "cache", "guard")
}

// resources are what it may mean: a semaphore's key may be a tenant of a family with a total, a mutex of a quorum.
func (x *target) resources(prefix string) (all []listing.Resource, err error) {
	for word, family := range x.families {
		kind := text.Kinds[word]
		if *family != "" && kind == keys.Mutex && x.key != "" { // or one that several servers decide
			all = append(all, listing.Of(prefix, keys.Quorum, *family, keys.Shown(x.key, x.hashed), false))
		}
		for _, total := range []bool{true, false} {
			// Without a key only a family with a total, and the loads of a cache, are shown.
			if *family != "" && (!total || kind == keys.Semaphore) && (x.key != "" || total || kind == keys.Flight) {
				all = append(all, listing.Of(prefix, kind, *family, keys.Shown(x.key, x.hashed), total))
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("want the name of a family, and --key")
	}
	return all, nil
}

func (a *app) show() *cobra.Command {
	var x target
	var asJSON bool
	c := &cobra.Command{
		Use:                   "show (--mutex | --semaphore | --cache | --guard) NAME --key KEY",
		DisableFlagsInUseLine: true,
		Short:                 "Show who holds and who waits for one key",
		Long: `show lists the holders of a key, oldest first, with where they run, since when
they hold it and when their lease ends if they don't renew it; then those who
wait, in their order. Of a cached value it says how large, how old and how fresh
it is.

A family of permits with a total has other keys in Redis than one of the same
name without a total. Where something is held or waited for in both, both are
shown.

HELD FOR with "!" means that the lease has been renewed for more than ten times
its TTL: its holder may hang. What is usual for the family is said where five or
more of its keys are held, and a look at all keys of the server takes at most
0.3 s.

A permit is held at least since the time that is shown; a lock and a load
exactly since then. Ids name leases to operators.`,
		Example: `  leasehold show --mutex jobs --key nightly
  leasehold show --semaphore exports --key acme --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := x.resources(a.prefix)
			if err != nil {
				return usagef("show: %w", err)
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				l := listing.New(rdb, a.prefix)
				states, err := found(c.Context(), l, all)
				if err != nil {
					return err
				}
				for _, s := range states {
					usual := l.UsualOf(c.Context(), s.Resource)
					if !asJSON {
						a.state(s, usual, len(states) > 1)
					} else if err := a.json(text.StateOf(s, usual, math.MaxInt)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	x.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "one object; of a cached value one for each version, of permits one with a total and one without")
	return c
}

// found is the states of those of the resources where something is held, waited for or kept. Where nothing is, it
// is those that have stored limits, and else the last one. Of a cached value it is that of each version in use.
func found(ctx context.Context, l *listing.Lister, of []listing.Resource) (states []listing.State, err error) {
	if r := of[0]; r.Kind == keys.Flight && r.Key != "" {
		others, err := l.Schemas(ctx, r)
		if err != nil {
			return nil, err
		}
		of = append(of, others...)
	}
	var limited []listing.State
	for i, r := range of {
		s, err := l.State(ctx, r, listing.Bounds{})
		switch {
		case err != nil && !errors.Is(err, listing.ErrTooMany):
			return nil, err
		case s.InUse+len(s.Waiters) > 0 || s.Value != nil || s.FailedFor > 0:
			states = append(states, s)
		case s.Stored || len(s.Limits) > 0, i == len(of)-1 && len(limited) == 0:
			limited = append(limited, s)
		}
	}
	if len(states) == 0 {
		return limited, nil
	}
	return states, nil
}

// state writes a state. Where it is oneOfSome it says which: which version of a cached
// value, or whether of a family with a total. Of a lock of several servers it always says so.
func (a *app) state(s listing.State, usual time.Duration, oneOfSome bool) {
	of := text.Title(s.Resource)
	switch {
	case s.Kind == keys.Quorum:
		of += " (of a quorum)"
	case !oneOfSome, s.Kind == keys.Mutex:
	case s.Kind == keys.Flight:
		of += " (schema " + cmp.Or(s.Schema, "0") + ")"
	case s.HasTotal:
		of += " (with a total)"
	default:
		of += " (without a total)"
	}
	fmt.Fprintf(a.out, "%s %s: %s\n", text.Kind(s.Kind), of, text.Summary(s, usual))
	if v := s.Value; v != nil {
		fmt.Fprintln(a.out, text.Value(v))
	}
	if s.Near > 0 {
		fmt.Fprintf(a.out, "Handles that may serve a copy from memory: %d.\n", s.Near)
	}
	if s.FailedFor > 0 {
		fmt.Fprintf(a.out, "A failed load is remembered for another %s: until then callers get its error.\n", text.Duration(s.FailedFor))
	}
	fmt.Fprint(a.out, text.Entries(s, a.width()))
}
