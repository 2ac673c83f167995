package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/top"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

func (a *app) ls() *cobra.Command {
	var asJSON, all bool
	var kind, family, order string
	var longer time.Duration
	c := &cobra.Command{
		Use:   "ls [TEXT]",
		Short: "List what is held, waited for and cached: one line per key",
		Long: `ls lists keys: how many permits are in use, how many wait and for how long,
which values are cached. TEXT keeps those whose kind, family and key contain its
words.

HELD is for how long the oldest lease of the key has been held; with "!" one has
been renewed for more than ten times its TTL and may hang. USUAL is for how long
nine in ten other keys of the family have been held at most, where five or more
are held. To find a lease that hangs, see --sort held and --held-longer;
leasehold show names its holder, leasehold revoke ends it.

Keys on which nothing happens are left out unless --all is given: of a lock the
last token is kept for a day.

It looks at all keys of the server, in calls of 1000 that each take well below a
millisecond, and changes nothing. In a Cluster it asks every primary.

With --json each line is an object: kind, family, key, inUse, limit,
storedLimit, waiting, longestWaitMs, expiresInMs, heldForMs, usualHoldMs,
overlong, keeps, token, cachedBytes, freshForMs, keptForMs, failedForMs, schema,
scope, hasTotal, error. A name that is no UTF-8 is also given as family_base64
or key_base64.`,
		Example: `  leasehold ls
  leasehold ls --kind semaphore --sort waiting
  leasehold ls --held-longer 5m --sort held
  leasehold ls --json acme | jq 'select(.waiting > 10)'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if kind != "" && text.Kinds[kind] == "" {
				return usagef("ls: --kind is %q; want mutex, semaphore, cache or guard", kind)
			}
			if !slices.Contains(listing.Orders, order) {
				return usagef("ls: --sort is %q; want one of %s", order, strings.Join(listing.Orders, ", "))
			}
			if longer < 0 {
				return usagef("ls: --held-longer is %v; want 0 or more", longer)
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				l := listing.New(rdb, a.prefix)
				found, err := l.Resources(c.Context())
				if err != nil {
					return err
				}
				uses, err := l.Uses(c.Context(), found)
				if err != nil {
					return err
				}
				usual := listing.Usual(uses)
				uses = slices.DeleteFunc(uses, func(u listing.Use) bool {
					return u.Idle() && !all || kind != "" && text.Kind(u.Kind) != kind || family != "" && u.Family != family || longer > 0 && u.HeldFor <= longer && u.Err == nil ||
						!text.Matches(u.Resource, strings.Join(args, ""))
				})
				listing.SortUses(uses, order)
				if !asJSON {
					a.lines(uses, usual, len(found), kind+family != "" || longer > 0 || len(args) > 0)
				}
				var lacks error // a right, for a line
				for _, u := range uses {
					if redis.IsPermissionError(u.Err) {
						lacks = u.Err
					}
					if asJSON {
						if err := a.json(text.LineOf(u, usual(u.Resource))); err != nil {
							return err
						}
					}
				}
				return lacks
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "one object per line")
	f.BoolVarP(&all, "all", "a", false, "also keys on which nothing happens")
	f.StringVar(&kind, "kind", "", "mutex, semaphore, cache or guard")
	f.StringVar(&family, "family", "", "one family")
	f.StringVar(&order, "sort", "name", strings.Join(listing.Orders, ", "))
	f.DurationVar(&longer, "held-longer", 0, "only keys with a lease that has been held for longer, such as 5m")
	return c
}

func (a *app) lines(uses []listing.Use, usual func(listing.Resource) time.Duration, found int, filtered bool) {
	if len(uses) == 0 && filtered && found > 0 {
		fmt.Fprintf(a.out, "None of %d keys is like that. Without --all, idle keys are left out.\n", found)
		return
	}
	if len(uses) == 0 {
		fmt.Fprintf(a.out, "Nothing is held, waited for or cached.")
		if found > 0 {
			fmt.Fprintf(a.out, " %d keys are known: see --all.", found)
		}
		fmt.Fprintln(a.out)
		return
	}
	rows := [][]string{text.Heads}
	for _, u := range uses {
		rows = append(rows, text.Row(u, usual(u.Resource)))
	}
	fmt.Fprint(a.out, text.Table(rows, text.Sides, 2, a.width()))
}

func (a *app) top() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Watch keys, holders and waiters in the terminal",
		Long: `top shows keys with their use, their queue and their longest wait, those with a
queue first, and keeps the figures up to date. Enter opens a key with its
holders and waiters.

Keys: up and down, page up and down, or j and k move; enter opens and esc goes
back; / filters by words of kind, family and key; s changes the order
(attention, longest wait, use, name); i also shows keys on which nothing
happens; q quits.

It only reads: what is shown once a second, and all keys of the server so seldom
that they take at most half a percent of the time.`,
		Example: `  leasehold top
  leasehold top --redis redis+cluster://cache-1:7000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
				return usagef("top: standard input or output is no terminal; leasehold ls writes lines")
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
				defer stop()
				return top.Run(ctx, listing.New(rdb, a.prefix), time.Second, nil)
			})
		},
	}
}

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
