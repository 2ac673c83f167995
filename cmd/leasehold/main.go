// Leasehold shows and uses the leases that a fleet keeps in Redis: leasehold help lists its commands.
package main

import (
	"context"
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/cli"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
)

func main() {
	if code, ok := run.Inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	code, signal := cli.Execute(context.Background(), os.Args[1:])
	if signal != 0 {
		run.DieOf(signal)
	}
	os.Exit(code)
}
