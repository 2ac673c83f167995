package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/changes"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

func (a *app) setLimit() *cobra.Command {
	var x changes.Limit
	c := &cobra.Command{
		Use:   "set-limit --semaphore NAME (--key KEY | --total) N",
		Short: "Set the limit of a key or the total of a family, fleet-wide",
		Long: `set-limit sets how many permits of a key may be in use, 1 to 100000, for the
whole fleet, in place of what each process is configured with. With --total it
sets the total of a family over all its keys, 1 to 1000000. 0 goes back to what
the processes are configured with.

More than before is granted to waiters at once. Less takes no permit away:
nothing is granted until the use is below it. The limit is kept in Redis without
an expiry until it is set to 0; a server that loses its data loses it.

A family with a total has other keys in Redis than one of the same name without
a total. The command sees which it is by what is in Redis. It refuses to set a
limit where there are keys of both, and to set a total where there are only keys
without one: say --has-total or --has-total=false then. Where nothing of the
family is there yet, a limit is of a family without a total, unless --has-total
is given.

Exit codes: 0 it is set; 64 bad arguments; 69 Redis is out of reach, or a script
failed there, and it may have been set; 77 the user lacks a right, and nothing
was set.`,
		Example: `  leasehold set-limit --semaphore exports --key acme 10
  leasehold set-limit --semaphore exports --key acme 0
  leasehold set-limit --semaphore exports --total 200`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if x.N, err = strconv.Atoi(args[0]); err != nil {
				return usagef("set-limit: the limit is %q; want a number", args[0])
			}
			if x.Family == "" || (x.Key == "") != x.Total {
				return usagef("set-limit: want --semaphore NAME, and --key KEY or --total")
			}
			insists := c.Flags().Changed("has-total")
			if x.Total && insists && !x.HasTotal {
				return usagef("set-limit: --total is for a family with a total; --has-total=false says that it has none")
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				if !insists {
					if x.HasTotal, err = a.hasTotal(c.Context(), rdb, x); err != nil {
						return err
					}
				}
				ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
				defer cancel()
				of := listing.Of(a.prefix, keys.Semaphore, x.Family, keys.Shown(x.Key, x.Hashed), x.HasTotal || x.Total)
				// A user who may set limits need not have the right to list.
				before, unread := listing.New(rdb, a.prefix).State(ctx, of, listing.Bounds{Entries: 1000})
				if err := changes.Set(ctx, rdb, a.prefix, x); err != nil {
					return changeFailed(err, "it may have been set: run the same command again")
				}
				a.limitSet(x, before, unread == nil || errors.Is(unread, listing.ErrTooMany))
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&x.Family, "semaphore", "", "the family")
	f.StringVar(&x.Key, "key", "", "the key")
	f.BoolVar(&x.Hashed, "hashed", false, "the family has HashKeys")
	f.BoolVar(&x.Total, "total", false, "set the total of the family")
	f.BoolVar(&x.HasTotal, "has-total", false, "the family has a total, whatever is in Redis; =false: it has none")
	return c
}

// hasTotal says whether the family of a limit has a total, by what is held, waited for or stored in Redis.
func (a *app) hasTotal(ctx context.Context, rdb redis.UniversalClient, x changes.Limit) (bool, error) {
	r := listing.Of(a.prefix, keys.Semaphore, x.Family, "", true)
	n, err := rdb.Exists(ctx, r.Part("holders"), r.Part("queue"), r.Part("limits"), r.Part("turns")).Result()
	if err != nil {
		return false, err
	}
	total := n > 0
	if total == x.Total {
		return total, nil
	}
	// Only a look at all keys of the server finds those of a family without a total.
	l := listing.New(rdb, a.prefix)
	all, err := l.Resources(ctx)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(r listing.Resource) bool {
		return r.Kind != keys.Semaphore || r.Family != x.Family || r.HasTotal
	})
	uses, err := l.Uses(ctx, all)
	switch {
	case err != nil:
		return false, err
	case !slices.ContainsFunc(uses, func(u listing.Use) bool { return u.Stored || !u.Idle() }):
		return true, nil
	case x.Total:
		return false, usagef("set-limit: Redis has only keys of %s without a total; a total would not count them. Say --has-total if its processes have a Total", text.Safe(x.Family))
	}
	return false, usagef("set-limit: Redis has keys of %s with a total and others without one; say --has-total or --has-total=false", text.Safe(x.Family))
}

// limitSet says what is in force now, what was before, where it is stored, and how to go back.
func (a *app) limitSet(x changes.Limit, before listing.State, known bool) {
	what, name, flag := "The limit of", text.Safe(x.Family), "--key "+quoted(x.Key)
	if x.Total {
		what, flag = "The total of", "--total"
	} else {
		name += "/" + text.Safe(x.Key)
	}
	if x.Hashed {
		flag += " --hashed"
	}
	if x.HasTotal && !x.Total {
		flag += " --has-total"
	}
	was, of := "what it was before could not be read", ""
	if n := text.Configured(before); n > 0 {
		of = " (" + strconv.Itoa(n) + ")"
	}
	switch limit := max(before.Limit, 0); {
	case !known:
	case before.Stored:
		was = fmt.Sprintf("before it was %d, set by hand", limit)
	default:
		was = "before it was what each process is configured with" + of
	}
	if x.N == 0 {
		fmt.Fprintf(a.out, "%s %s is what each process is configured with%s; %s.\n", what, name, of, was)
		return
	}
	fmt.Fprintf(a.out, "%s %s is %d for all processes, set by hand; %s.\n", what, name, x.N, was)
	if before.HasTotal {
		fmt.Fprintf(a.out, "It is stored in the hash %s, without an expiry.\n", text.Safe(before.Part("limits")))
	} else {
		fmt.Fprintf(a.out, "It is stored in %s, without an expiry.\n", text.Safe(before.Part("limit")))
	}
	if known && of == "" {
		fmt.Fprintln(a.out, "Nothing is held or waited for, so that the configured figure is not known here.")
	}
	fmt.Fprintf(a.out, "To go back to the configured figure%s: leasehold set-limit --semaphore %s %s 0\n", of, quoted(x.Family), flag)
}

// quoted is a name as a shell takes it.
func quoted(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r))
	}) < 0 {
		return name
	}
	safe := text.Safe(name)
	if strings.ReplaceAll(name, `\`, `\\`) == safe {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(safe, "'", `\'`) + "'" // bash and zsh read the escapes
}
