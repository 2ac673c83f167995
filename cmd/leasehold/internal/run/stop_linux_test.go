package run

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

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

// A Ctrl-Z that has stopped the program is not passed on to it once more, also if the listener says nothing in time.
func TestCtrlZThatTheProgramTookIsNotPassedOn(t *testing.T) {
	a := &attendant{listener: &listener{heard: map[syscall.Signal]time.Time{}, news: make(chan struct{})}}
	at := time.Now()
	redistest.Check(t, a.listener.toToolAlone(unix.SIGTSTP, at), "the tool alone has heard of it so far")
	a.paused(unix.SIGTSTP)
	redistest.Check(t, !a.listener.toToolAlone(unix.SIGTSTP, at), "it has stopped the program")
	redistest.Check(t, a.listener.toToolAlone(unix.SIGTSTP, time.Now().Add(time.Second)), "the next one has not")
}
