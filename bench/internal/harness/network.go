package harness

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Delay is what the network between clients and server takes in each direction.
const Delay = 500 * time.Microsecond

func init() { redistest.RegisterChild("bench-network", networkChild) }

// networkChild is the process of a network: its arguments are the server's address and the
// delay in each direction.
func networkChild(args []string) int {
	runtime.GOMAXPROCS(8) // one of them sleeps most of the time
	relay := Value(redistest.StartRelay(args[0], Value(time.ParseDuration(args[1]))))
	fmt.Println("ready", relay.Addr())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt)
	<-ended
	return 0
}

// Behind is the same server behind a network with [Delay].
func (s *Server) Behind(b testing.TB) *Server { return s.Distant(b, 2*Delay) }

// Distant is the same server behind a network with a round trip, which keeps the order of
// what it carries, and carries whatever comes. It is a process of its own, so that it wakes
// in time while clients work. With a round trip of 0 it is the server itself.
func (s *Server) Distant(b testing.TB, roundTrip time.Duration) *Server {
	b.Helper()
	if roundTrip == 0 {
		return s
	}
	relay := redistest.StartChild(b, "bench-network", s.options.Addr, (roundTrip / 2).String())
	far := *s
	far.options.Addr = relay.Expect("ready")
	far.url = "redis://" + far.options.Addr + "/0"
	return &far
}
