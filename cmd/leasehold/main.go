// Leasehold shows and uses the leases that a fleet keeps in Redis: leasehold help lists its commands.
package main

import (
	"context"
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/cli"
)

func main() {
	if code, ok := inner(os.Args[1:]); ok {
		os.Exit(code)
	}
	code, signal := cli.Execute(context.Background(), os.Args[1:])
	if signal != 0 {
		dieOf(signal)
	}
	os.Exit(code)
}
