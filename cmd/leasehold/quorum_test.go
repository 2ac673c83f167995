package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// run takes a lock that several servers decide. Neither one that takes connections and answers nothing nor one that
// is gone is in its way.
func TestRunUnderALockOfAQuorum(t *testing.T) {
	version := redistest.Newest(t)
	var servers []*redistest.Server
	var rdbs []redis.UniversalClient
	var urls []string
	for range 3 {
		s := redistest.StartServer(t, version)
		servers, rdbs, urls = append(servers, s), append(rdbs, s.Client()), append(urls, "redis://"+s.Addr())
	}
	name, file := redistest.Name(t), filepath.Join(t.TempDir(), "order")
	run := func(wait, script string) *tool {
		return start(t, "", "run", "--quorum", strings.Join(urls, ","), "--mutex", name, "--key", "k", "--wait", wait, "--", "sh", "-c", script)
	}
	run("30s", "true").ends(0) // the first lock of a family needs all servers
	servers[1].Pause()
	began := time.Now()
	run("0", "true").ends(0)
	run("2s", "true").ends(0)
	redistest.AtMost(t, time.Since(began), 5*time.Second, "two runs took %v; one alone would wait as long for what the silent server knows")
	servers[1].Resume()

	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: name}))(t)
	defer m.Close(t.Context())
	l := redistest.Must(m.Lock(t.Context(), "k"))(t)
	waits := run("10s", "echo $LEASEHOLD_TOKEN")
	redistest.Eventually(t, "the tool waits", func() bool {
		state, err := m.Inspect(t.Context(), "k")
		return err == nil && state.Waiting == 1
	})
	servers[1].Kill()
	redistest.WantErr(t, l.Unlock())
	token := waits.line()
	redistest.Check(t, token > fmt.Sprint(l.Token()), "the program has the token %q, after %d", token, l.Token())
	waits.ends(0)
	script := "echo begin >> " + file + "; sleep 0.2; echo end >> " + file
	for _, x := range []*tool{run("10s", script), run("10s", script)} {
		x.ends(0)
	}
	redistest.Expect(t, string(redistest.Must(os.ReadFile(file))(t)), "begin\nend\nbegin\nend\n", "the programs ran beside each other: %q")
	start(t, "", "run", "--quorum", strings.Join(urls[:2], ","), "--mutex", name, "--key", "k", "--", "true").ends(64)
	start(t, "", "run", "--quorum", strings.Join(urls, ","), "--semaphore", name, "--limit", "1", "--key", "k", "--", "true").ends(64)
}
