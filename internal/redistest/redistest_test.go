package redistest

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func init() {
	// echo prints its arguments and then what it reads.
	RegisterChild("echo", func(args []string) int {
		fmt.Println("args", strings.Join(args, ","))
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println("echo", lines.Text())
		}
		return 7
	})
	// orphan starts a server and a child of its own and leaves them behind.
	RegisterChild("orphan", func([]string) int {
		tb := new(orphanTB)
		c := StartChild(tb, "echo")
		fmt.Println("child", c.proc.pid())
		if v := Installed(); len(v) > 0 {
			fmt.Println("server", StartServer(tb, v[0]).proc.pid())
		}
		fmt.Println("ready")
		select {}
	})
}

// orphanTB is a test that never ends.
type orphanTB struct{ testing.TB }

func (*orphanTB) Helper()                   {}
func (*orphanTB) Cleanup(func())            {}
func (*orphanTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// A test run that is killed runs no cleanup. What it started must not stay.
func TestChildrenDieWithTheTestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	t.Setenv("TMPDIR", t.TempDir()) // for the folder that the server leaves behind
	c := StartChild(t, "orphan")
	var pids []int
	for {
		line := Must(c.Line())(t)
		if line == "ready" {
			break
		}
		_, number, _ := strings.Cut(line, " ")
		pid := Must(strconv.Atoi(number))(t)
		pids = append(pids, pid)
	}
	for _, pid := range pids {
		Require(t, syscall.Kill(pid, 0), nil, "process %d: %v", pid)
	}
	c.Kill()
	for _, pid := range pids {
		Eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return gone(pid) })
	}
}

// gone reports whether a process has ended, be it that nobody has reaped it.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestMain(m *testing.M) { Main(m) }

// A server that was killed keeps its port until its test ends: nodes of its Cluster still call there.
func TestPortOfAKilledServerIsNotGivenAway(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has names for sockets that end with the process")
	}
	port := 0
	t.Run("killed", func(t *testing.T) {
		s := StartServer(t, Newest(t))
		s.Kill()
		port = s.port
		_, err := reserve(port)
		Check(t, err != nil, "another process gets port %d", port)
	})
	if port != 0 {
		WantErr(t, Must(reserve(port))(t).Close())
	}
}
