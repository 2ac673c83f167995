package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A fleet of tools whose programs append their tokens to one log, while tools are
// stopped, killed, terminated and cut off from Redis: the log's tokens never fall.
func TestTokensInALogNeverFall(t *testing.T) {
	addr, _ := server(t)
	proxy := redistest.NewProxy(t, addr)
	name, log := redistest.Name(t), filepath.Join(t.TempDir(), "log")
	random := rand.New(rand.NewPCG(redistest.Seed(t), 0))
	// The program would go on for a minute, and does not care for SIGTERM half of
	// the time.
	script := `[ $(($LEASEHOLD_TOKEN % 2)) = 0 ] && trap "" TERM
		i=0; while [ $i -lt 60 ]; do echo $LEASEHOLD_TOKEN >>"$0"; i=$((i + 1)); sleep 0.02; done`
	join := func() *tool {
		return start(t, "redis://"+proxy.Addr()+"?read_timeout=300ms", "run", "--mutex", name, "--key", "k", "--ttl", "1s", "--", "sh", "-c", script, log)
	}
	// last is the token that is written now, and how many have been.
	last := func() (token uint64, different int) {
		text, _ := os.ReadFile(log)
		for line := range strings.Lines(string(text)) {
			n, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			if err != nil {
				t.Fatalf("the log has %q", line)
			}
			if n < token {
				t.Fatalf("the token falls from %d to %d", token, n)
			}
			if n > token {
				different++
			}
			token = n
		}
		return token, different
	}
	fleet := make([]*tool, 4)
	for i := range fleet {
		fleet[i] = join()
	}
	faults := map[string]int{}
	var stopped []*tool
	rounds := 25
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		before, _ := last()
		redistest.Eventually(t, "another holder", func() bool { now, _ := last(); return now > before })
		// Which of them holds the lock does not show: the fault hits two of four.
		fault := []string{"TERM", "KILL", "STOP", "cut", "nothing"}[round%5]
		faults[fault]++
		random.Shuffle(len(fleet), func(i, j int) { fleet[i], fleet[j] = fleet[j], fleet[i] })
		for _, x := range fleet[:2] {
			switch fault {
			case "TERM":
				_ = x.cmd.Process.Signal(syscall.SIGTERM)
			case "KILL":
				_ = x.cmd.Process.Signal(syscall.SIGKILL)
			case "STOP":
				_ = x.cmd.Process.Signal(syscall.SIGSTOP)
				stopped = append(stopped, x)
			}
		}
		switch fault {
		case "cut":
			proxy.Cut(true, true)
			time.Sleep(time.Duration(200+random.IntN(1200)) * time.Millisecond)
			proxy.Heal()
		}
		if round%5 == 4 {
			for _, x := range stopped {
				_ = x.cmd.Process.Signal(syscall.SIGCONT)
			}
			stopped = nil
		}
		for i, x := range fleet {
			select {
			case <-x.done:
				fleet[i] = join()
			default:
				if fault == "STOP" && i < 2 {
					fleet[i] = join()
				}
			}
		}
	}
	_, different := last()
	if different < rounds/2 {
		t.Fatalf("only %d holders wrote", different)
	}
	t.Logf("%d holders wrote, through %v", different, faults)
}
