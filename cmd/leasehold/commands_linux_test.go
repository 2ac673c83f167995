package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// An answer that can't be written is no answer, whether the disk is full or the reader gone.
func TestAnswerThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	l := redistest.Must(s.locks(0).Lock(t.Context(), "k"))(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no full disk here")
	}
	defer full.Close()
	r, closed, err := os.Pipe()
	redistest.WantErr(t, err)
	_ = r.Close()
	defer closed.Close()
	show := []string{"show", "--mutex", s.name, "--key", "k"}
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, show, append(show, "--json"), {"help"}, {"run", "--help"}} {
		for about, out := range map[string]*os.File{"a full disk": full, "a reader that has gone": closed} {
			cmd := command(t, s.url, args...)
			var errs strings.Builder
			cmd.Stdout, cmd.Stderr = out, &errs
			_ = cmd.Run()
			code := cmd.ProcessState.ExitCode()
			redistest.Check(t, code == 74 && strings.Contains(errs.String(), "standard output"), "%v with %s ends with %d: %s", args, about, code, errs.String())
		}
	}
	redistest.WantErr(t, l.Unlock())
}

// The demo without a Redis has one of its own, and all in it that an engineer on call has to
// put right: a holder that hangs, a tenant that crowds the others out and a load that fails.
func TestDemoHasSomethingToPutRight(t *testing.T) {
	t.Parallel()
	x := start(t, "", "demo")
	url := ""
	for url == "" {
		line := x.line()
		if _, behind, ok := strings.Cut(line, "export REDIS_URL="); ok {
			url = behind
		} else if line == "" && !alive(x.cmd.Process.Pid) {
			t.Fatalf("the demo ends: %s", x.stderr.String())
		}
	}
	type use struct {
		Key, ID        string
		InUse, Waiting int
		FailedForMs    int
		Holders        []struct{ ID, Label string }
	}
	ask := func(args ...string) (all []use) {
		t.Helper()
		out, err := command(t, url, args...).Output()
		redistest.CheckNow(t, err == nil, "%v: %v", args, err)
		for in := json.NewDecoder(bytes.NewReader(out)); in.More(); {
			var u use
			redistest.WantErr(t, in.Decode(&u))
			all = append(all, u)
		}
		return all
	}
	find := func(family, key string, is func(use) bool) {
		t.Helper()
		redistest.Eventually(t, family+"/"+key, func() bool {
			return slices.ContainsFunc(ask("ls", "--json", "--family", family), func(u use) bool { return u.Key == key && is(u) })
		})
	}
	find("imports", "acme", func(u use) bool { return u.InUse >= 5 && u.Waiting > 0 })
	find("prices", "eur", func(u use) bool { return u.FailedForMs > 0 })
	find("jobs", "backup", func(u use) bool { return u.Waiting == 2 })
	holder := func() (id, label string) {
		for _, h := range ask("show", "--json", "--mutex", "jobs", "--key", "backup")[0].Holders {
			return h.ID, h.Label
		}
		return "", ""
	}
	lost, _ := holder()
	rdb := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(url, "redis://")})
	defer rdb.Close()
	redistest.WantErr(t, rdb.Del(t.Context(), "leasehold:mtx:{jobs:backup}:holders").Err())
	redistest.Eventually(t, "node-3 to hang again", func() bool {
		id, label := holder()
		return id != lost && label == "node-3"
	})
	// The commands of the table that docs/operations.md begins with; not doctor, which finds fault with the demo's server.
	table, _, _ := strings.Cut(string(redistest.Must(os.ReadFile("../../docs/operations.md"))(t)), "\n## ")
	typed := regexp.MustCompile("`(leasehold (?:ls|show|set-limit|revoke) --[^`]+)`").FindAllStringSubmatch(table, -1)
	for _, found := range typed {
		line := found[1]
		if strings.Contains(line, " ID") {
			id, _ := holder()
			line = strings.Replace(line, " ID", " -- "+id, 1)
		}
		cmd := exec.Command("sh", "-c", strings.Replace(line, "leasehold", `"$0"`, 1), command(t, url).Path)
		cmd.Env = command(t, url).Env
		out, err := cmd.CombinedOutput()
		redistest.Check(t, err == nil && len(out) > 0, "%s: %v: %s", line, err, out)
	}
	redistest.Check(t, len(typed) >= 8, "docs/operations.md says only %q", typed)
	find("jobs", "backup", func(u use) bool { return u.Waiting <= 1 })
	x.signal(syscall.SIGTERM)
	x.ends(0)
}

// A demo gives everything back when its terminal is gone; under nohup it goes on.
func TestDemoOutlivesItsTerminalOnlyUnderNohup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	backup := s.name + ":mtx:{jobs:backup}:holders"
	held := func(n int64) {
		t.Helper()
		redistest.Eventually(t, fmt.Sprintf("%d locks of the backup", n), func() bool { return s.rdb.ZCard(t.Context(), backup).Val() == n })
	}
	demo := command(t, s.url, "demo", "--prefix", s.name)
	x := started(t, under("trap '' HUP", demo))
	held(1)
	x.signal(syscall.SIGHUP)
	at := redistest.Must(s.rdb.Time(t.Context()).Result())(t).Add(500 * time.Millisecond) // it would have ended by then
	redistest.Eventually(t, "a lock that is taken after the signal", func() bool {
		token, _ := s.rdb.Get(t.Context(), s.name+":mtx:{jobs:backup}:fence").Int64()
		return s.rdb.Del(t.Context(), backup).Err() == nil && token > at.UnixMicro()
	})
	x.signal(syscall.SIGTERM)
	x.ends(0)
	x = start(t, s.url, "demo", "--prefix", s.name)
	held(1)
	x.signal(syscall.SIGHUP)
	x.ends(0)
	held(0)
}

func servePage(t *testing.T, files int, args ...string) (url string) {
	t.Helper()
	x := started(t, under("ulimit -n "+strconv.Itoa(files), command(t, newSite(t).url, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)))
	url, _, _ = strings.Cut(strings.TrimPrefix(x.line(), "Serving "), "#")
	return url
}

// A client that asks again and again gets nothing for a while, and others go on.
func TestRequestsOfAClientAreBounded(t *testing.T) {
	t.Parallel()
	url := servePage(t, 1000)
	ask := func(from string, n int) (answered int) {
		t.Helper()
		to := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DialContext: to.DialContext}}
		defer client.CloseIdleConnections()
		for range n {
			r := redistest.Must(client.Get(url + "style.css"))(t)
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			switch r.StatusCode {
			case http.StatusOK:
				answered++
			case http.StatusTooManyRequests:
				return answered
			default:
				t.Fatal(r.Status)
			}
		}
		return answered
	}
	redistest.Between(t, ask("127.0.0.1", 5000), 100, 4999, "%d of 5000 requests are answered")
	redistest.Expect(t, ask("127.0.0.2", 50), 50, "%d of 50 requests of another client are answered")
	redistest.Eventually(t, "an answer", func() bool { return ask("127.0.0.1", 1) == 1 })
}

// Clients that send their requests byte by byte keep no browser out, and do not stay.
func TestSlowClientsKeepNoBrowserOut(t *testing.T) {
	t.Parallel()
	url := servePage(t, 150, "--allow-changes") // fewer than there are slow clients
	host := strings.Trim(strings.TrimPrefix(url, "http://"), "/")
	var last net.Conn
	for range 200 {
		c := redistest.Must(net.Dial("tcp", host))(t)
		defer c.Close()
		fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken=", host)
		last = c
	}
	// The slow clients that were let in stay for 5 s: the browser does not wait for their end.
	browser := http.Client{Timeout: 4 * time.Second}
	r, err := browser.Get(url)
	redistest.CheckNow(t, err == nil, "a browser is kept out: %v", err)
	_ = r.Body.Close()
	redistest.Check(t, r.StatusCode == http.StatusOK, "a browser gets %s", r.Status)
	// The last of them, which made nobody room, goes on sending, and never gets to the end.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, last)
	}()
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for sent := 0; ; sent++ {
		select {
		case <-gone:
			return
		case <-next.C:
			redistest.CheckNow(t, sent < 900, "a slow client stays")
			_, _ = last.Write([]byte("x"))
		}
	}
}
