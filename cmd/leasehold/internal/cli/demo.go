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
	return &cobra.Command{
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
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				ending := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
				if signal.Ignored(syscall.SIGHUP) { // by nohup
					ending = ending[:2]
				}
				ctx, stop := signal.NotifyContext(c.Context(), ending...)
				defer stop()
				fmt.Fprintln(a.out, "A fleet is at work, until it is interrupted.")
				fmt.Fprint(a.out, demo.Trouble)
				return demo.Run(ctx, rdb, a.prefix)
			})
		},
	}
}
