package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// do runs a command in this process.
func do(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("REDIS_URL", url)
	var out bytes.Buffer
	root := New(&out, &out)
	root.SetArgs(idsBehindFlags(root, args))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestLsAndShowOnAllDeployments(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb, to := target.Client(t), target.URL(t)
		family := redistest.Name(t)
		sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 3}))(t)
		mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: family}))(t)
		lock := redistest.Must(mtx.Lock(t.Context(), "nightly"))(t)
		defer lock.Unlock()
		const hostile = "a\x1b[2J<b>"
		for i := range 12 {
			l := redistest.Must(sem.AcquireN(t.Context(), fmt.Sprint(hostile, i), 2))(t)
			defer l.Release()
		}
		out, err := do(t, to, "ls", "--family", family)
		if err != nil || strings.Count(out, "\n") != 14 || strings.Contains(out, "\x1b") || !strings.Contains(out, `a\x1b[2J<b>7`) || !strings.Contains(out, "2/3") {
			t.Fatalf("ls: %v\n%s", err, out)
		}
		out, err = do(t, to, "ls", "--json", "--family", family, "--kind", "semaphore", "b>1")
		if err != nil || strings.Count(out, "\n") != 3 {
			t.Fatalf("ls --json: %v\n%s", err, out)
		}
		for line := range strings.Lines(out) {
			var x struct {
				Key          string
				InUse, Limit int
			}
			if err := json.Unmarshal([]byte(line), &x); err != nil || x.InUse != 2 || x.Limit != 3 || !strings.HasPrefix(x.Key, hostile) {
				t.Errorf("a line is %s: %v", line, err)
			}
		}
		out, err = do(t, to, "show", "--mutex", family, "--key", "nightly")
		if err != nil || !strings.Contains(out, "1 of 1 in use") || !strings.Contains(out, lock.ID()) {
			t.Fatalf("show: %v\n%s", err, out)
		}
		out, err = do(t, to, "show", "--semaphore", family, "--key", hostile+"3", "--json")
		var x struct {
			InUse   int
			Holders []struct{ ID string }
		}
		if err := json.Unmarshal([]byte(out), &x); err != nil || x.InUse != 2 || len(x.Holders) != 1 {
			t.Fatalf("show --json: %v\n%s", err, out)
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err = do(t, to, "show", "--mutex", family, "--key", "nobody's")
		if err != nil || !strings.Contains(out, "0 of 1 in use") {
			t.Fatalf("show of nothing: %v\n%s", err, out)
		}
	})
}

// A URL of one node of a Cluster shows all of it.
func TestNodeOfAClusterIsUsedAsACluster(t *testing.T) {
	c := redistest.SharedCluster(t, redistest.Newest(t))
	rdb, family := c.Client(), redistest.Name(t)
	mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: family}))(t)
	for i := range 20 {
		l := redistest.Must(mtx.Lock(t.Context(), fmt.Sprint(i)))(t)
		defer l.Unlock()
	}
	out, err := do(t, "redis://"+c.Nodes[0].Addr(), "ls", "--family", family)
	if err != nil || strings.Count(out, "\n") != 21 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// commands are all, from the root down.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// Prose fits 80 columns, and each command has an example.
func TestHelpFitsTheTerminal(t *testing.T) {
	for _, c := range commands(New(os.Stdout, os.Stderr)) {
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		if c.HasParent() && (c.Long == "" || c.Example == "") {
			t.Errorf("%s has no help or no example", c.CommandPath())
		}
	}
}

func TestManPagesAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if out, err := do(t, "", "man", dir); err != nil {
		t.Fatal(err, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "leasehold-run.1"))
	if err != nil || !strings.Contains(string(page), "conflict") || !strings.Contains(string(page), "124") {
		t.Fatalf("the page of run: %v\n%s", err, page)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, err := do(t, "", "completion", shell); err != nil || len(out) < 1000 {
			t.Errorf("%s: %v, %d bytes", shell, err, len(out))
		}
	}
}

func TestManyKeysAreListedSoon(t *testing.T) {
	s := redistest.StartServer(t, redistest.Newest(t))
	rdb := s.Client()
	pipe := rdb.Pipeline()
	ends := float64(time.Now().Add(time.Minute).UnixMilli())
	for i := range 110_000 {
		if i < 10_000 {
			pipe.ZAdd(t.Context(), fmt.Sprintf("leasehold:sem:{exports:%d}:holders", i), redis.Z{Score: ends, Member: "AbCdEfGh_-0123456789xy.1.1.30000.5"})
		} else {
			pipe.Set(t.Context(), fmt.Sprint("other:", i), i, 0)
		}
		if i%5000 == 4999 {
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			pipe = rdb.Pipeline()
		}
	}
	began := time.Now()
	out, err := do(t, "redis://"+s.Addr(), "ls")
	if err != nil || strings.Count(out, "\n") != 10_001 {
		t.Fatalf("%v, %d lines", err, strings.Count(out, "\n"))
	}
	t.Logf("10,000 keys among 100,000 others: %v", time.Since(began))
	began = time.Now()
	if out, err = do(t, "redis://"+s.Addr(), "show", "--semaphore", "exports", "--key", "4711"); err != nil || !strings.Contains(out, "1 of 5 in use") {
		t.Fatalf("show: %v\n%s", err, out)
	}
	t.Logf("one of them: %v", time.Since(began))
}
