package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/top"
	"github.com/leasehold-go/leasehold/internal/listing"
)

func (a *app) top() *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch keys, holders and waiters in the terminal",
		Long: `top shows keys with their use, their queue and their longest wait, those with a
queue first, and keeps the figures up to date. Enter opens a key with its
holders and waiters.

Keys: up and down, page up and down, or j and k move; enter opens and esc goes
back; / filters by words of kind, family and key; s changes the order
(attention, longest wait, use, name); i also shows keys on which nothing
happens; q quits.

It only reads: what is shown each --every, and all keys of the server so seldom
that they take at most half a percent of the time.`,
		Example: `  leasehold top
  leasehold top --every 5s --redis redis+cluster://cache-1:7000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 200*time.Millisecond || every > time.Hour {
				return usagef("top: --every is %v; want 200ms to 1h", every)
			}
			if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
				return usagef("top: standard input or output is no terminal; leasehold ls writes lines")
			}
			return a.with(c.Context(), func(rdb redis.UniversalClient) error {
				ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
				defer stop()
				return top.Run(ctx, listing.New(rdb, a.prefix), every, nil)
			})
		},
	}
	c.Flags().DurationVar(&every, "every", time.Second, "how often what is shown is brought up to date")
	return c
}
