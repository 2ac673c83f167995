package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// servePage serves the page in a process with files for so few connections.
func servePage(t *testing.T, files int, args ...string) (url string) {
	t.Helper()
	addr, _ := server(t)
	tool := command(t, "redis://"+addr)
	x := &wrapped{t: t, cmd: exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, files), "sh", tool.Path, "serve", "--listen", "127.0.0.1:0"}, args...)...)}
	x.cmd.Env = tool.Env
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	x.start()
	if _, err := fmt.Fscanf(out, "Serving %s\n", &url); err != nil {
		t.Fatal(err)
	}
	url, _, _ = strings.Cut(url, "#")
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
			r, err := client.Get(url + "style.css")
			if err != nil {
				t.Fatal(err)
			}
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
	if n := ask("127.0.0.1", 5000); n < 100 || n == 5000 {
		t.Errorf("%d of 5000 requests are answered", n)
	}
	if n := ask("127.0.0.2", 50); n != 50 {
		t.Errorf("%d of 50 requests of another client are answered", n)
	}
	redistest.Eventually(t, "an answer", func() bool { return ask("127.0.0.1", 1) == 1 })
}

// Clients that send their requests byte by byte keep no browser out, and do not stay.
func TestSlowClientsKeepNoBrowserOut(t *testing.T) {
	t.Parallel()
	url := servePage(t, 150, "--allow-changes") // fewer than there are slow clients
	host := strings.Trim(strings.TrimPrefix(url, "http://"), "/")
	var last net.Conn
	for range 200 {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\ntoken=", host)
		last = c
	}
	// The slow clients that were let in stay for 5 s: the browser does not wait for their end.
	browser := http.Client{Timeout: 4 * time.Second}
	r, err := browser.Get(url)
	if err != nil {
		t.Fatalf("a browser is kept out: %v", err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("a browser gets %s", r.Status)
	}
	// The last of them, which made nobody room, goes on sending.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, last)
	}()
	redistest.Eventually(t, "the end of a slow client", func() bool {
		_, _ = last.Write([]byte("x"))
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}
