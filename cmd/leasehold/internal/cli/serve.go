package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/page"
)

func (a *app) serve() *cobra.Command {
	var listen, tokenFile string
	var changes bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a page that shows all of it, live",
		Long: `serve serves a page for a browser: families with their use, queues and limits,
holders and waiters of each key, cached values and loads, live, with charts over
the last minutes and a search. It only reads, unless --allow-changes lets it set
limits and totals and revoke leases, each after a question.

It listens on this machine alone unless --listen says otherwise. For any other
address, and with --allow-changes, a browser has to give a token: that in
--token-file or $LEASEHOLD_PAGE_TOKEN, of 16 bytes or more, or else one that is
made and printed. Put a proxy with TLS before it where the network is not yours.

However many browsers watch, it looks for keys once a minute and polls what they
show once a second; while nobody watches it asks nothing.`,
		Example: `  leasehold serve
  leasehold serve --listen :8470 --token-file /run/secrets/leasehold`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			host, port, err := net.SplitHostPort(listen)
			if err == nil {
				_, err = net.DefaultResolver.LookupPort(c.Context(), "tcp", port)
			}
			if err != nil {
				return usagef("serve: --listen is %q; want host:port", listen)
			}
			opt := page.Options{Prefix: a.prefix, Changes: changes, Token: os.Getenv("LEASEHOLD_PAGE_TOKEN")}
			if c.Flags().Changed("token-file") {
				text, err := os.ReadFile(tokenFile)
				if err != nil {
					return usagef("serve: --token-file can't be read: %w", err)
				}
				// Without a token everybody on this machine would be let in.
				if opt.Token = strings.TrimSpace(string(text)); opt.Token == "" {
					return usagef("serve: --token-file has no token; want one of at least 16 bytes")
				}
			}
			if loopback(host) {
				opt.Hosts = []string{"localhost", "127.0.0.1", "::1", strings.ToLower(host)}
			}
			made := opt.Token == "" && (changes || !loopback(host))
			if made {
				opt.Token = rand.Text()
			}
			rdb, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer rdb.Close()
			p, err := page.New(rdb, opt)
			if err != nil {
				return usage(err)
			}
			return a.serving(c.Context(), p, listen, made, opt.Token)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8470", "host and port")
	c.Flags().BoolVar(&changes, "allow-changes", false, "let the page set limits and totals, and revoke leases")
	c.Flags().StringVar(&tokenFile, "token-file", "", "file that holds the token")
	return c
}

// requestBound is how long a request may take to come, also one that is refused: the server reads the rest of it first.
const requestBound = 5 * time.Second

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (a *app) serving(ctx context.Context, p *page.Page, listen string, made bool, token string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve: the page can't be served there: %w; --listen takes another address", err)
	}
	url := "http://" + l.Addr().String() + "/"
	if made {
		// Behind the '#', so that it stands in nobody's logs.
		url += "#token=" + token
	}
	fmt.Fprintf(a.out, "Serving %s\n", url)
	s := &http.Server{Handler: &bounds{Handler: p}, ReadTimeout: requestBound, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(&bounded{Listener: l, most: mostConnections, perClient: mostOfAClient}) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		p.Close()
		bound, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err = s.Shutdown(bound); err != nil {
			err = s.Close()
		}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
