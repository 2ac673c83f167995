// Leader shows one leader in a fleet of processes. The leader is shut down, the
// next one is cut off from Redis, and the one after that is killed. Each time
// another process takes over, and never do two lead at once.
//
//	go run ./examples/leader
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. It exits with 1 if two processes led at once, if a leader was not told
// of its end, or if nobody took over.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

var program = demo.Program{
	Name:  "leader",
	Limit: 45 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"candidate": candidate},
}

func main() { program.Main() }

var names = []string{"A", "B", "C", "D"}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	s := &stage{
		out:       out,
		fleet:     demo.NewFleet(srv, demo.RunName("leader")),
		processes: map[string]*demo.Process{},
		links:     map[string]*demo.Link{},
	}
	defer s.close()

	out.Print("One leader in a fleet of %d processes.", len(names))
	out.Print("They use %s.", srv.Label)
	out.Print("The lease lasts %v and is renewed while its holder lives.\n", leaseTTL)
	for _, name := range names {
		if err := s.start(srv, name); err != nil {
			return nil, err
		}
	}
	ends, err := s.play(ctx)
	if err != nil {
		return nil, err
	}
	terms := termsOf(s.fleet.Events())
	out.Print("\n%s", strings.Join(timeline(terms), "\n"))
	out.Print("\n%s", table(ends))
	problems := verdict(terms, ends)
	if len(problems) == 0 {
		out.Print("Never two leaders at once, and each leader's token is above the one before.")
	}
	return problems, nil
}
