package cli

import (
	"fmt"
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
overlong, token, cachedBytes, freshForMs, keptForMs, failedForMs, schema, scope,
error. A name that is no UTF-8 is also given as family_base64 or key_base64.`,
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
				usual := listing.Usual(slices.Values(uses))
				uses = slices.DeleteFunc(uses, func(u listing.Use) bool {
					return u.Idle() && !all || kind != "" && text.Kind(u.Kind) != kind || family != "" && u.Family != family || longer > 0 && u.HeldFor <= longer ||
						!text.Matches(u.Resource, strings.Join(args, ""))
				})
				listing.SortUses(uses, order)
				if !asJSON {
					a.lines(uses, usual, len(found), kind+family != "" || longer > 0 || len(args) > 0)
					return nil
				}
				for _, u := range uses {
					if err := a.json(text.LineOf(u, usual(u.Resource))); err != nil {
						return err
					}
				}
				return nil
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
