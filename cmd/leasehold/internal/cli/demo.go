package cli

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/demo"
)

func (a *app) demo() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "demo",
		Short: "Let a small fleet work, so that there is something to see",
		Long: `demo takes and gives back locks, permits and cached values as a small fleet
does, until it is interrupted: exports of customers with their limits, jobs that
one host does at a time, pages that one host renders. It then gives everything
back.

` + demo.Trouble + `
It writes below --prefix. Look at it with ls, top and serve. If neither --redis
nor $REDIS_URL says where Redis is, the demo starts a server of its own, and
says how the other commands reach it.`,
		Example: `  leasehold demo --prefix demo &
  leasehold top --prefix demo
  leasehold ls --prefix demo --sort held`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Hosts < 1 || o.Hosts > 100:
				return usagef("demo: --hosts is %d; want 1 to 100", o.Hosts)
			case o.Pace < 0.05 || o.Pace > 20:
				return usagef("demo: --pace is %v; want 0.05 to 20", o.Pace)
			}
			if !a.connect.Named() {
				own := miniredis.NewMiniRedis()
				own.ClockTTL(true)
				if err := own.Start(); err != nil {
					return fmt.Errorf("the demo's own server can't be started: %w", err)
				}
				defer own.Close()
				a.connect.URL = "redis://" + own.Addr()
				fmt.Fprintf(a.out, "The demo has a server of its own. In another terminal type:\n\n  export REDIS_URL=%s\n\n", a.connect.URL)
			}
			o.Prefix = a.prefix
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				fmt.Fprintln(a.out, "A fleet is at work, until it is interrupted.")
				fmt.Fprint(a.out, demo.Trouble)
				return demo.Run(ctx, rdb, o)
			})
		},
	}
	c.Flags().IntVar(&o.Hosts, "hosts", 4, "processes that the fleet seems to have")
	c.Flags().Float64Var(&o.Pace, "pace", 1, "stretches all holds and pauses; below 1 is busier")
	return c
}
