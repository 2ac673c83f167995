package run

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func init() {
	redistest.RegisterChild("stops itself", func([]string) int {
		signal.Notify(make(chan os.Signal, 1), unix.SIGTSTP)
		for fmt.Println(os.Getpid()); ; fmt.Println("goes on") {
			stopSelf()
		}
	})
}

// The tool goes on, and learns of the next Ctrl-Z, if that comes before the tool has heard of the SIGCONT.
func TestStopIsOverAlthoughTheNextOneComesAtOnce(t *testing.T) {
	c := redistest.StartChild(t, "stops itself")
	pid := redistest.Must(strconv.Atoi(redistest.Must(c.Line())(t)))(t)
	for range 50 {
		redistest.Eventually(t, "the stop", func() bool { return isStopped(pid) })
		redistest.WantErr(t, unix.Kill(pid, unix.SIGCONT))
		redistest.WantErr(t, unix.Kill(pid, unix.SIGTSTP))
		c.Expect("goes on")
	}
}
