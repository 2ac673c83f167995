//go:build unix

package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
)

// defaultGrace is how long before its lease ends a program is told to stop.
const defaultGrace = 5 * time.Second

func (a *app) run() *cobra.Command {
	var o run.Options
	var wait, lost string
	conflict := run.CodeConflict
	c := &cobra.Command{
		Use:                   "run (--mutex | --semaphore) NAME --key KEY [flags] -- PROGRAM…",
		DisableFlagsInUseLine: true,
		Short:                 "Run a program under a lock or a permit",
		Long: `run waits for a lock (--mutex) or for a permit (--semaphore), runs a program while
it holds that, and gives it back when the program has ended.

The lease is renewed while the program runs. Where it can't be, because Redis is
out of reach or this tool was stopped or killed, the program's process group gets
SIGTERM --grace before the lease ends, and SIGKILL at its end, by a small guard
process: no other holder starts while the program still runs. A program that
leaves its process group is not reached; its writes are refused where they carry
LEASEHOLD_TOKEN and the resource checks it. A permit counts beside those of a family
of the same name with a total, not among them. Where another tool's lease was revoked,
the program starts once that tool's program has ended.

The program gets this terminal and standard input, and in its environment
LEASEHOLD_KEY and, under a lock, LEASEHOLD_TOKEN: the fencing token. Signals that
the tool gets are passed on to the program alone. What the program leaves running
in its process group is ended before the lease is given back.

Exit codes: the program's own, or 128 + the number of the signal that ended it;
  64   bad arguments                   69   Redis is out of reach
  75   the lease was not had in time   125  the tool itself failed
  126  the program can't be run        127  the program was not found
  124  the lease was lost, and the program stopped for that; or the place in the
       queue was revoked, and nothing ran`,
		Example: `  # a cron job that never runs twice at a time; another host's run is skipped
  leasehold run --mutex jobs --key nightly --wait 0 --conflict-exit-code 0 \
    -- /usr/local/bin/nightly

  # at most three exports of this customer in the fleet, others wait
  leasehold run --semaphore exports --key acme --limit 3 -- ./export acme`,
		RunE: func(c *cobra.Command, args []string) error {
			o.Program, o.Prefix = args, a.prefix
			if err := checkRun(c, &o, wait, lost, conflict); err != nil {
				return usage(err)
			}
			rdb, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer rdb.Close()
			code, err := run.Run(rdb, o)
			var e *run.Error
			if errors.As(err, &e) && e.Code == run.CodeConflict {
				e.Code = conflict
				if conflict == 0 {
					fmt.Fprintf(a.err, "leasehold: %v\n", e.Err)
					return nil
				}
			}
			if err != nil {
				return err
			}
			return exit(code)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows the program's name is the program's
	f.StringVar(&o.Mutex, "mutex", "", "name of the family of locks")
	f.StringVar(&o.Semaphore, "semaphore", "", "name of the family of permits; wants --limit")
	f.StringVar(&o.Key, "key", "", "key of the lock or the permit, 1 to 512 bytes")
	f.IntVar(&o.Limit, "limit", 0, "permits of the key, 1 to 100000, of a semaphore")
	f.StringVar(&wait, "wait", "", "longest wait for the lease, such as 30s; 0 = don't wait (default without end)")
	f.DurationVar(&o.TTL, "ttl", 30*time.Second, "length of the lease between renewals, at least 100ms")
	f.StringVar(&lost, "lost", "term", "how the program is stopped: term = SIGTERM, then SIGKILL; kill = SIGKILL")
	f.DurationVar(&o.Grace, "grace", 0, "from SIGTERM to SIGKILL, at most a third of --ttl (default 5s, or a sixth of --ttl)")
	f.IntVar(&conflict, "conflict-exit-code", run.CodeConflict, "exit code where the lease was not had in time, 0 to 255")
	return c
}

// checkRun completes the options, and says what is wrong with them.
func checkRun(c *cobra.Command, o *run.Options, wait, lost string, conflict int) error {
	switch {
	case (o.Mutex == "") == (o.Semaphore == ""):
		return errors.New("run: want --mutex NAME or --semaphore NAME")
	case o.Key == "" || len(o.Key) > 512:
		return fmt.Errorf("run: --key has %d bytes; want 1 to 512", len(o.Key))
	case o.Semaphore != "" && !c.Flags().Changed("limit"):
		return errors.New("run: --semaphore wants --limit: the number of permits of the key")
	case o.Mutex != "" && c.Flags().Changed("limit"):
		return errors.New("run: --limit is for --semaphore; a lock has one holder")
	case len(o.Program) == 0:
		return errors.New("run: no program: want -- PROGRAM [ARGUMENT…]")
	case lost != "term" && lost != "kill":
		return fmt.Errorf("run: --lost is %q; want term or kill", lost)
	case conflict < 0 || conflict > 255:
		return fmt.Errorf("run: --conflict-exit-code is %d; want 0 to 255", conflict)
	case o.TTL < 100*time.Millisecond:
		return fmt.Errorf("run: --ttl is %v; want at least 100ms", o.TTL)
	}
	o.Kill = lost == "kill"
	if !c.Flags().Changed("grace") {
		o.Grace = min(defaultGrace, o.TTL/6)
	}
	if o.Grace < 0 || o.Grace > o.TTL/3 {
		return fmt.Errorf("run: --grace is %v; want 0 to %v, a third of --ttl", o.Grace, o.TTL/3)
	}
	o.Wait = -1
	if wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil || d < 0 {
			return fmt.Errorf("run: --wait is %q; want a duration such as 30s, or 0", wait)
		}
		o.Wait = d
	}
	return nil
}
