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

// Clients that send their requests byte by byte keep no browser out, and do not stay.
func TestSlowClientsKeepNoBrowserOut(t *testing.T) {
	t.Parallel()
	addr, _ := server(t)
	tool := command(t, "redis://"+addr)
	// It has files for fewer connections than there are slow clients.
	x := &wrapped{t: t, cmd: exec.Command("sh", "-c", `ulimit -n 150; exec "$@"`, "sh", tool.Path, "serve", "--listen", "127.0.0.1:0", "--allow-changes")}
	x.cmd.Env = tool.Env
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	x.start()
	var url string
	if _, err := fmt.Fscanf(out, "Serving %s\n", &url); err != nil {
		t.Fatal(err)
	}
	url, _, _ = strings.Cut(url, "#")
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
