// Extend shows two ways to keep a lease through work of several steps: the
// automatic renewal alone, and an explicit Extend before each step for as long
// as that step may take. Redis is away for a while in a long step, and then both
// kinds of holder are killed. What is left of each lease is drawn over time, in
// the terminal and as a picture (SVG).
//
//	go run ./examples/extend
//
// It uses the Redis or Valkey at REDIS_URL, or an embedded server where that is
// not set. -svg names the file of the picture. It exits with 1 if a lease ended
// otherwise than it should have.
package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

var program = demo.Program{
	Name:  "extend",
	Limit: 45 * time.Second,
	Run:   run,
	Roles: map[string]demo.Role{"worker": worker, "heir": heir},
}

var svgFile = flag.String("svg", filepath.Join(os.TempDir(), "leasehold-extend.svg"), "the file of the picture")

func main() {
	program.RunIfChild()
	flag.Parse()
	program.Main()
}

func run(ctx context.Context, out *demo.Output, srv *demo.Server) ([]string, error) {
	out.Print("A job of %d steps under a lease of %v, on", len(steps), leaseTTL)
	out.Print("%s.", srv.Label)
	out.Print("Four processes run it at once, each with a key of its own, for some seconds.\n")
	runs, err := play(ctx, srv)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		out.Print("%s: %s", r.name, r.title())
		for _, line := range r.chart() {
			out.Print("%s", line)
		}
		out.Print("%s\n", r.outcome())
	}
	if err := os.WriteFile(*svgFile, []byte(picture(runs)), 0o644); err != nil {
		return nil, err
	}
	out.Print("The picture is in %s.", *svgFile)
	problems := verdict(runs)
	if len(problems) == 0 {
		out.Print("\nThe renewal alone frees a dead process's lease soon, and loses the lease when")
		out.Print("Redis is away for longer than the TTL. Extend survives that, and its price is")
		out.Print("that a dead process's lease stays taken for as long as it was extended.")
	}
	return problems, nil
}
