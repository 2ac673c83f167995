package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/changes"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
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
					one := changes.Revoke(ctx, rdb, a.prefix, changes.Revocation{
						Kind: of.Kind, Family: of.Family, Key: x.key, Hashed: x.hashed, HasTotal: of.HasTotal, ID: args[0], Reason: reason,
					})
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

// changeFailed gives the error of a change its exit code; unknown says what may be true of one
// whose outcome is not known.
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
	if i < 0 || err != nil || c.Name() != "revoke" || slices.Contains(args, "--") {
		return args
	}
	if before := c.Flag(strings.TrimPrefix(args[i-1], "--")); before != nil && before.NoOptDefVal == "" {
		return args // it is the value of a flag
	}
	return append(slices.Delete(slices.Clone(args), i, i+1), "--", args[i])
}
