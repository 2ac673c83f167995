package httpcap_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// However a request ends, its permit is given back, and the next one has it.
func TestEveryEndGivesBack(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		for _, c := range []struct {
			end  string
			work http.HandlerFunc
			want string // the body; "": net/http closes the connection
		}{
			{"an answer", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }, "ok"},
			{"a panic", func(http.ResponseWriter, *http.Request) { panic("a panic of the test") }, ""},
			{"an abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
			{"the end of the goroutine", func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, ""},
			{"a hijack", func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
				_ = conn.Close()
			}, "ok"},
			{"a stream", func(w http.ResponseWriter, _ *http.Request) {
				for i := range 3 {
					_, _ = fmt.Fprintln(w, "part", i)
					w.(http.Flusher).Flush()
				}
			}, "part 0\npart 1\npart 2\n"},
		} {
			a := get(t.Context(), serve(t, capped(t, caps, httpcap.Config{}, c.work)))
			redistest.Check(t, (a.err == nil) == (c.want != "") && a.body == c.want, "%s: %q, %v", c.end, a.body, a.err)
			captest.WantState(t, caps, 0, 0)
		}
	})
}

// So it is where the client leaves in the middle of the answer, or of its own request.
func TestClientThatLeavesInTheMiddleGivesBack(t *testing.T) {
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		caps := captest.New(t, target.Client(t), semaphore.Config{Limit: 1})
		begun := make(chan struct{})
		url := serve(t, capped(t, caps, httpcap.Config{}, func(_ http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body) // it ends when the client leaves
				return
			}
			<-r.Context().Done()
		}))
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			ctx, leave := context.WithCancel(t.Context())
			body, sent := io.Pipe()
			var never io.Reader // nil: there is no body
			if method == http.MethodPost {
				never = body
			}
			req := redistest.Must(http.NewRequestWithContext(ctx, method, url, never))(t)
			left := make(chan answer, 1)
			go func() { left <- do(req) }()
			redistest.Get(t, "the request", begun)
			captest.WantState(t, caps, 1, 0)
			leave()
			_ = sent.CloseWithError(context.Canceled) // net/http waits for the reader of a body
			if a := redistest.Get(t, "the client's end", left); !isLeft(a.err) {
				t.Errorf("%s: %v", method, a.err)
			}
			captest.WantState(t, caps, 0, 0)
		}
	})
}
