package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
)

// defaultGrace is how long before its lease ends a program is told to stop.
const defaultGrace = 5 * time.Second

func (a *app) run() *cobra.Command {
	var o run.Options
	var wait string
	var quorum []string
	conflict := run.CodeConflict
	c := &cobra.Command{
		Use:                   "run (--mutex | --semaphore) NAME --key KEY [flags] -- PROGRAM…",
		DisableFlagsInUseLine: true,
		Short:                 "Run a program under a lock or a permit",
		Long: `run waits for a lock (--mutex) or for a permit (--semaphore), runs a program
while it holds that, and gives it back when the program has ended.

The lease is renewed while the program runs. If it can't be renewed, because
Redis is out of reach or this tool was stopped, a small guard process ends the
program and all that descends from it: SIGTERM --grace before the lease ends,
SIGKILL at its end. If this tool was killed, SIGKILL comes at once. No other
holder starts while the program still runs. A
daemon in a session of its own is not reached; its writes are refused if they
carry LEASEHOLD_TOKEN and the resource checks it. A program that runs as another
user (setuid) is refused, because it could not be ended: use sudo leasehold run,
or --lost warn. A permit counts beside those of a family of the same name with a
total, not among them. If another tool's lease was revoked, the program starts
once that tool's program has ended.

With --once SLOT the program runs once for that slot, on whichever host takes
the lock first: if it ends with 0, the slot is complete, and for --keep each
further run for it ends with 0 at once, and runs nothing. Any other end leaves
the slot open, and the next run goes on.

The program gets this terminal and standard input, and in its environment
LEASEHOLD_KEY and, under a lock, LEASEHOLD_TOKEN: the fencing token. A signal to
the tool alone is passed on to the program. Processes that the program leaves
running are ended before the lease is given back.

Exit codes: the program's own, or 128 + the number of the signal that ended it;
  64   bad arguments                   69   Redis is out of reach
  75   the lease was not had in time   125  the tool itself failed
  126  the program can't be run        127  the program was not found
  124  the lease was lost, and the program stopped for that; or the place in the
       queue was revoked, and nothing ran`,
		Example: `  # a cron job that never runs twice at a time; another host's run is skipped
  leasehold run --mutex jobs --key nightly --wait 0 --conflict-exit-code 0 \
    -- /usr/local/bin/nightly

  # a nightly job on several hosts whose clocks differ; it runs on one of them
  leasehold run --mutex jobs --key nightly --once "$(date +%F)" --keep 20h \
    -- /usr/local/bin/nightly

  # at most three exports of this customer in the fleet, others wait
  leasehold run --semaphore exports --key acme --limit 3 -- ./export acme`,
		RunE: func(c *cobra.Command, args []string) error {
			o.Program, o.Prefix, o.Quorum = args, a.prefix, quorum != nil
			if err := checkRun(c, &o, wait, conflict); err != nil {
				return usage(err)
			}
			code, err := run.Run(func(ctx context.Context) ([]redis.UniversalClient, error) { return a.dialAll(ctx, quorum) }, o)
			if e, ok := errors.AsType[*run.Error](err); ok && e.Code == run.CodeConflict {
				e.Code = conflict
				if conflict == 0 {
					fmt.Fprintln(a.err, message(e.Err, nil))
					return nil
				}
			}
			if err == nil && code != 0 {
				err = &run.Error{Code: code}
			}
			return err
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows the program's name is the program's
	f.StringVar(&o.Mutex, "mutex", "", "name of the family of locks")
	f.StringVar(&o.Semaphore, "semaphore", "", "name of the family of permits; wants --limit")
	f.StringSliceVar(&quorum, "quorum", nil, "URLs of 3, 5, 7 or 9 servers that decide the lock together, instead of --redis, separated by commas; wants --mutex")
	f.StringVar(&o.Key, "key", "", "key of the lock or the permit, 1 to 512 bytes")
	f.IntVar(&o.Limit, "limit", 0, "permits of the key, 1 to 100000, of a semaphore")
	f.StringVar(&wait, "wait", "", "longest time until the program starts, such as 30s; 0 = don't wait for a turn (default without end)")
	f.DurationVar(&o.TTL, "ttl", 30*time.Second, "length of the lease between renewals, at least 100ms")
	f.StringVar(&o.Lost, "lost", run.LostTerm, "what the program gets when the lease ends: term = SIGTERM, then SIGKILL; kill = SIGKILL; warn = nothing, the tool warns and the program goes on")
	f.DurationVar(&o.Grace, "grace", 0, "from SIGTERM to SIGKILL, at most a third of --ttl (default 5s, or a sixth of --ttl)")
	f.StringVar(&o.Once, "once", "", "run once for this slot, such as a date, 1 to 512 bytes; wants --mutex and --keep")
	f.DurationVar(&o.Keep, "keep", 0, "how long a complete slot is remembered, at least 1s; longer than the hosts' clocks differ")
	f.IntVar(&conflict, "conflict-exit-code", run.CodeConflict, "exit code where the lease was not had in time, 0 to 255")
	return c
}

// checkRun completes the options, and says what is wrong with them.
func checkRun(c *cobra.Command, o *run.Options, wait string, conflict int) error {
	switch {
	case (o.Mutex == "") == (o.Semaphore == ""):
		return errors.New("run: want --mutex NAME or --semaphore NAME")
	case o.Quorum && o.Mutex == "":
		return errors.New("run: --quorum is for --mutex")
	case o.Key == "" || len(o.Key) > 512:
		return fmt.Errorf("run: --key has %d bytes; want 1 to 512", len(o.Key))
	case o.Semaphore != "" && !c.Flags().Changed("limit"):
		return errors.New("run: --semaphore wants --limit: the number of permits of the key")
	case o.Mutex != "" && c.Flags().Changed("limit"):
		return errors.New("run: --limit is for --semaphore; a lock has one holder")
	case c.Flags().Changed("once") && (o.Once == "" || len(o.Once) > 512):
		return fmt.Errorf("run: --once has %d bytes; want 1 to 512", len(o.Once))
	case o.Once != "" && o.Mutex == "":
		return errors.New("run: --once is for --mutex")
	case o.Once != "" && !c.Flags().Changed("keep"):
		return errors.New("run: --once wants --keep: how long a complete slot is remembered, such as 20h")
	case o.Once != "" && o.Keep < time.Second:
		return fmt.Errorf("run: --keep is %v; want at least 1s", o.Keep)
	case o.Once == "" && c.Flags().Changed("keep"):
		return errors.New("run: --keep is for --once")
	case len(o.Program) == 0 || o.Program[0] == "":
		return errors.New("run: no program: want -- PROGRAM [ARGUMENT…]")
	case o.Lost != run.LostTerm && o.Lost != run.LostKill && o.Lost != run.LostWarn:
		return fmt.Errorf("run: --lost is %q; want term, kill or warn", o.Lost)
	case conflict < 0 || conflict > 255:
		return fmt.Errorf("run: --conflict-exit-code is %d; want 0 to 255", conflict)
	case o.TTL < 100*time.Millisecond:
		return fmt.Errorf("run: --ttl is %v; want at least 100ms", o.TTL)
	}
	if !c.Flags().Changed("grace") {
		o.Grace = min(defaultGrace, o.TTL/6)
	}
	if o.Grace < 0 || o.Grace > o.TTL/3 {
		return fmt.Errorf("run: --grace is %v; want 0 to %v, a third of --ttl", o.Grace, o.TTL/3)
	}
	o.Wait = -1
	if c.Flags().Changed("wait") {
		d, err := time.ParseDuration(wait)
		if err != nil || d < 0 {
			return fmt.Errorf("run: --wait is %q; want a duration such as 30s, or 0", wait)
		}
		o.Wait = d
	}
	return nil
}
