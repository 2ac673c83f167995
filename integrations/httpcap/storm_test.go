package httpcap_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	neturl "net/url"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// storm has the ways in which a request of the storm ends, and the answer that its client gets, before it leaves. "": it
// gets none, and net/http closes the connection.
var storm = map[string]string{
	"answer": "ok", "panic": "", "abort": "", "goexit": "", "hijack": "ok", "stream": "part 0\npart 1\npart 2\n",
	"client leaves": "begun", "never sent whole": "",
}

// However 1,000 requests at the same time end, no more run than the limit allows, each gives
// back what it took, and each whose client stays is served.
func TestStorm(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		const requests, limit = 1000, 8
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: limit})
		var running, served atomic.Int64
		work := func(w http.ResponseWriter, r *http.Request) {
			redistest.AtMost(t, running.Add(1), limit, "%d requests run at the same time")
			defer running.Add(-1)
			served.Add(1)
			<-time.After(2 * time.Millisecond) // the work
			behave(t, w, r)
		}
		url := serve(t, capped(t, caps, httpcap.Config{Wait: 2 * time.Minute}, work))
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: requests}}
		defer client.CloseIdleConnections()

		kinds := slices.Sorted(maps.Keys(storm))
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() {
				kind := kinds[i%len(kinds)]
				redistest.Expect(t, send(t.Context(), client, url, kind), nil, "request %d (%s): %v", i, kind)
			})
		}
		all.Wait()
		captest.WantState(t, caps, 0, 0)
		// Clients that left may have left before their turn.
		redistest.AtLeast(t, served.Load(), requests*6/8, "%d requests were served")
	})
}

// behave does in a handler what the request asks for.
func behave(t *testing.T, w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("kind") {
	case "panic":
		panic("a panic of the test")
	case "abort":
		panic(http.ErrAbortHandler)
	case "goexit":
		runtime.Goexit()
	case "hijack":
		conn, _, err := http.NewResponseController(w).Hijack()
		redistest.NoError(t, err)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
		_ = conn.Close()
	case "stream":
		for i := range 3 {
			_, _ = fmt.Fprintln(w, "part", i)
			w.(http.Flusher).Flush()
		}
	case "client leaves":
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-r.Context().Done() // the client leaves when it has read that
	case "never sent whole":
		_, _ = io.Copy(io.Discard, r.Body) // it ends when the client leaves
	default:
		_, _ = io.WriteString(w, "ok")
	}
}

// send sends a request of that kind and returns an error unless it ended as it should.
func send(ctx context.Context, client *http.Client, url, kind string) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var body io.Reader
	if kind == "never sent whole" {
		var w *io.PipeWriter
		body, w = io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "begun")
			time.AfterFunc(20*time.Millisecond, func() { // while it waits, or is served
				leave()
				_ = w.CloseWithError(context.Canceled) // net/http waits for the reader of a body
			})
		}()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	req.URL.RawQuery = neturl.Values{"kind": {kind}}.Encode()
	res, err := client.Do(req)
	want := storm[kind]
	switch {
	case err != nil && want == "":
		return nil
	case err != nil:
		return err
	}
	defer res.Body.Close()
	text := make([]byte, len(want))
	if _, err := io.ReadFull(res.Body, text); err != nil || res.StatusCode != http.StatusOK || string(text) != want || want == "" {
		return fmt.Errorf("status %d: %q, %w", res.StatusCode, text, err)
	}
	return nil
}
