// Tenants shows an HTTP service that caps the requests in flight of each tenant and of
// all tenants together. Two greedy tenants send all that they can; eight modest ones
// send a request now and then. With fair shares a modest tenant's request is let in
// within two turns; in one plain queue it waits behind all that the greedy ones sent.
//
//	go run ./examples/tenants             a live view, until Enter on an empty line
//	go run ./examples/tenants -headless   ends by itself, with a verdict
//
// Without a standard input the live view goes on until it is interrupted.
//
// In the live view these lines change what happens:
//
//	fifo | fair           one plain queue for all, or fair shares
//	total 16              the total of all tenants, 0 = back to 8
//	limit greedy-1 2      the limit of a tenant, 0 = back to 4
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is not
// set. It exits with 1 if a limit was passed, or if a modest tenant waited too long.
package main

import (
	"bufio"
	"context"
	"flag"
	"os"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

var program = demo.Program{
	Name:  "tenants",
	Limit: 55 * time.Second,
	Run:   headless,
	Roles: map[string]demo.Role{"service": service},
}

func main() {
	program.RunIfChild()
	end := flag.Bool("headless", false, "end by itself, with a verdict")
	flag.Parse()
	if !*end {
		program.Run, program.Limit = live, 24*time.Hour
	}
	program.Main()
}

// The caps of the service, as its processes are configured.
const (
	limit = 4 // of a tenant
	total = 8 // of all
)

// processes is how many of the service there are.
const processes = 3

// headless shows one plain queue, then fair shares, then limits that change.
func headless(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	s, err := newStage(ctx, out, srv)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out.Print("Two greedy tenants and eight modest ones, %d processes of the service.", processes)
	out.Print("They use %s.", srv.Label)
	out.Print("At most %d requests in flight of a tenant, %d of all.\n", limit, total)
	for _, p := range []phase{
		{name: "one plain queue", orders: []string{"fifo"}, lasts: 5 * time.Second},
		{name: "fair shares", orders: []string{"fair"}, lasts: 6 * time.Second},
		{name: "fair shares, total 16", orders: []string{"total 16"}, lasts: 3 * time.Second, total: 16},
		{name: "fair shares, greedy-1 at most 2", orders: []string{"limit greedy-1 2"}, lasts: 3 * time.Second, total: 16, limited: 2},
	} {
		if err := s.play(ctx, p); err != nil {
			return nil, err
		}
	}
	s.stopLoad()
	for _, r := range s.results {
		out.Print("%s", r.table())
	}
	problems := verdict(s.results)
	if len(problems) == 0 {
		out.Print("No limit was passed, and fair shares let every modest tenant in at its turn.")
	}
	return problems, nil
}

// live shows what happens until the reader ends it.
func live(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	s, err := newStage(ctx, out, srv)
	if err != nil {
		return nil, err
	}
	defer s.close()
	lines := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- strings.TrimSpace(in.Text())
		}
		close(lines)
	}()
	r := s.begin(phase{name: "fair shares"})
	redraw := time.NewTicker(500 * time.Millisecond)
	defer redraw.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				lines = nil // there is nobody to end it but by a signal
				continue
			}
			if line == "" {
				return nil, nil
			}
			if err := s.order(line); err != nil {
				s.note = err.Error()
				continue
			}
			r = s.begin(phase{name: line})
			s.note = ""
		case <-redraw.C:
			out.Print("\033[H\033[2J%s\n%s\nfifo, fair, total N, limit TENANT N; Enter ends it.", s.watch(r), s.note)
		case <-ctx.Done():
			return nil, nil
		}
	}
}
