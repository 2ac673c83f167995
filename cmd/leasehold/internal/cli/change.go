package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/changes"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

func (a *app) revoke() *cobra.Command {
	var x target
	var reason string
	c := &cobra.Command{
		Use:                   "revoke (--mutex|--semaphore|--cache) NAME --key KEY --reason TEXT ID",
		DisableFlagsInUseLine: true,
		Short:                 "Take a lease away from its holder, or a waiter its place",
		Long: `revoke takes a lock, the permits of one lease, a waiter's place or the right to
load away, and hands what is free to the next waiter at once. ID is what show
lists.

The holder is told within milliseconds: its Context ends with the reason. A
program that does not look at its Context works on, beside the next holder; a
guard, or a condition on the fencing token, refuses its writes once the next
holder has written. So make sure first that the holder is dead, or that it
stops: see docs/operations.md.

The reason, 1 to 200 bytes, goes to the holder and into the audit stream of the
key, which keeps about 1000 entries for 30 days. Revoking the same lease again
is no error.

Exit codes: 0 it is revoked; 1 there is no such lease, waiter or load; 64 bad
arguments; 69 Redis is out of reach, or a script failed there, and it may have
been revoked; 77 the user lacks a right, and nothing was revoked.`,
		Example: `  leasehold show --mutex jobs --key nightly
  leasehold revoke --mutex jobs --key nightly --reason "host is gone" veuiyn0G-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := x.resources(a.prefix)
			if err != nil {
				return usagef("revoke: %w", err)
			}
			if all[0].Kind == keys.Guard || x.key == "" {
				return usagef("revoke: want --mutex, --semaphore or --cache, and --key")
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
				defer cancel()
				err := leasehold.ErrNoLease
				for _, of := range all {
					one := changes.Revoke(ctx, rdb, a.prefix, of, args[0], reason)
					if one == nil || errors.Is(err, leasehold.ErrNoLease) { // what is not known of one outweighs that
						err = one
					}
					if one == nil || redis.IsPermissionError(one) {
						break
					}
				}
				if err != nil {
					return changeFailed(err, "it may have been revoked: run the same command again")
				}
				fmt.Fprintf(a.out, "%s of %s/%s is revoked.\n", text.Safe(args[0]), text.Safe(all[0].Family), text.Safe(x.key))
				return nil
			})
		},
	}
	x.flags(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for the holder and the audit")
	_ = c.MarkFlagRequired("reason")
	return c
}

// changeFailed gives the error of a change its exit code; unknown says what may be true if the
// outcome is not known.
func changeFailed(err error, unknown string) error {
	switch {
	case errors.Is(err, leasehold.ErrNoLease):
		return fmt.Errorf("%w: it may have ended meanwhile; leasehold show lists the IDs that are there now", err)
	case errors.Is(err, leasehold.ErrInvalid), errors.Is(err, changes.ErrFamily):
		return usage(err)
	case redis.IsPermissionError(err): // nothing was done
	case errors.Is(err, leasehold.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return &run.Error{Code: run.CodeUnreachable, Err: fmt.Errorf("%w; %s", err, unknown)}
	}
	return err
}

// dashedID is an ID that reads as a flag: the characters of one handle in 64 begin with a dash.
var dashedID = regexp.MustCompile(`^-[-_0-9A-Za-z]{7}-[0-9]+$`)

// idsBehindFlags moves such an ID of a revoke behind "--", so that it can be given as it is listed.
func idsBehindFlags(root *cobra.Command, args []string) []string {
	i := slices.IndexFunc(args, dashedID.MatchString)
	c, _, err := root.Find(args)
	if i < 1 || err != nil || c.Name() != "revoke" || slices.Contains(args, "--") {
		return args
	}
	if name, ok := strings.CutPrefix(args[i-1], "--"); ok {
		if before := c.Flag(name); before != nil && before.NoOptDefVal == "" {
			return args // it is the value of a flag
		}
	}
	return append(slices.Delete(slices.Clone(args), i, i+1), "--", args[i])
}

// limit is what set-limit is told.
type limit struct {
	family, key string
	hashed      bool
	total       bool // the total of the family is set, not the limit of a key
	hasTotal    bool // the family has a total, which decides what keys it has in Redis
	insists     bool // hasTotal was said, whatever is in Redis
	n           int  // 0 = what the processes are configured with
}

func (a *app) setLimit() *cobra.Command {
	var x limit
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
			if x.n, err = strconv.Atoi(args[0]); err != nil {
				return usagef("set-limit: the limit is %q; want a number from 0 to 100000, or of a total to 1000000", args[0])
			}
			if x.family == "" || (x.key == "") != x.total {
				return usagef("set-limit: want --semaphore NAME, and --key KEY or --total")
			}
			x.insists = c.Flags().Changed("has-total")
			if x.total && x.insists && !x.hasTotal {
				return usagef("set-limit: --total is for a family with a total; --has-total=false says that it has none")
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				if !x.insists {
					if x.hasTotal, err = a.hasTotal(c.Context(), rdb, x); err != nil {
						return err
					}
				}
				ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
				defer cancel()
				of := listing.Of(a.prefix, keys.Semaphore, x.family, "", true)
				if !x.total {
					of = listing.Of(a.prefix, keys.Semaphore, x.family, keys.Shown(x.key, x.hashed), x.hasTotal)
				}
				// The right to set limits is not the right to list.
				before, unread := listing.New(rdb, a.prefix).State(ctx, of, listing.Bounds{Entries: 1000})
				if err := changes.Set(ctx, rdb, a.prefix, of, x.n); err != nil {
					return changeFailed(err, "it may have been set: run the same command again")
				}
				a.limitSet(x, before, unread == nil || errors.Is(unread, listing.ErrTooMany))
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&x.family, "semaphore", "", "the family")
	f.StringVar(&x.key, "key", "", "the key")
	f.BoolVar(&x.hashed, "hashed", false, "the family has HashKeys")
	f.BoolVar(&x.total, "total", false, "set the total of the family")
	f.BoolVar(&x.hasTotal, "has-total", false, "the family has a total, whatever is in Redis; =false: it has none")
	return c
}

// hasTotal says whether the family of a limit has a total, by what is held, waited for or stored in Redis.
func (a *app) hasTotal(ctx context.Context, rdb redis.UniversalClient, x limit) (bool, error) {
	r := listing.Of(a.prefix, keys.Semaphore, x.family, "", true)
	n, err := rdb.Exists(ctx, r.Part("holders"), r.Part("queue"), r.Part("limits"), r.Part("turns")).Result()
	if err != nil {
		return false, err
	}
	total := n > 0
	if total == x.total {
		return total, nil
	}
	// Only a look at all keys of the server finds those of a family without a total.
	l := listing.New(rdb, a.prefix)
	all, err := l.Resources(ctx)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(r listing.Resource) bool {
		return r.Kind != keys.Semaphore || r.Family != x.family || r.HasTotal
	})
	uses, err := l.Uses(ctx, all)
	switch {
	case err != nil:
		return false, err
	case !slices.ContainsFunc(uses, func(u listing.Use) bool { return u.Stored || !u.Idle() }):
		return true, nil
	case x.total:
		return false, usagef("set-limit: Redis has only keys of %s without a total; a total would not count them. Say --has-total if its processes have a Total", text.Safe(x.family))
	}
	return false, usagef("set-limit: Redis has keys of %s with a total and others without one; say --has-total or --has-total=false", text.Safe(x.family))
}

// limitSet says what is in force now, what was before, where it is stored, and how to go back.
func (a *app) limitSet(x limit, before listing.State, known bool) {
	what, name, flag := "The limit of", text.Safe(x.family), "--key "+text.Quoted(x.key)
	if x.total {
		what, flag = "The total of", "--total"
	} else {
		name += "/" + text.Safe(x.key)
	}
	if x.hashed {
		flag += " --hashed"
	}
	switch {
	case x.total:
	case x.hasTotal:
		flag += " --has-total"
	case x.insists:
		flag += " --has-total=false"
	}
	if a.prefix != "" {
		flag += " --prefix " + text.Quoted(a.prefix)
	}
	was, of := "what it was before could not be read", ""
	if n := text.Configured(before); n > 0 {
		of = " (" + strconv.Itoa(n) + ")"
	}
	switch n := max(before.Limit, 0); {
	case !known:
	case before.Stored:
		was = fmt.Sprintf("before it was %d, set by hand", n)
	default:
		was = "before it was what each process is configured with" + of
	}
	if x.n == 0 {
		fmt.Fprintf(a.out, "%s %s is what each process is configured with%s; %s.\n", what, name, of, was)
		return
	}
	fmt.Fprintf(a.out, "%s %s is %d for all processes, set by hand; %s.\n", what, name, x.n, was)
	if before.HasTotal {
		fmt.Fprintf(a.out, "It is stored in the hash %s, without an expiry.\n", text.Safe(before.Part("limits")))
	} else {
		fmt.Fprintf(a.out, "It is stored in %s, without an expiry.\n", text.Safe(before.Part("limit")))
	}
	if known && of == "" {
		fmt.Fprintln(a.out, "Nothing is held or waited for, so that the configured figure is not known here.")
	}
	fmt.Fprintf(a.out, "To go back to the configured figure%s: leasehold set-limit --semaphore %s %s 0\n", of, text.Quoted(x.family), flag)
}
