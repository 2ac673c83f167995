package httpcap_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/integrations/httpcap"
	"github.com/leasehold-go/leasehold/integrations/internal/captest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

// The server removes the temporary files of the request that it made, and knows nothing of copies.
func TestUploadsLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		entries := redistest.Must(os.ReadDir(dir))(t)
		return len(entries)
	}
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	var outside string
	inside := capped(t, caps, httpcap.Config{}, func(_ http.ResponseWriter, r *http.Request) {
		redistest.NoError(t, r.ParseMultipartForm(1))
		redistest.Check(t, files() != 0, "the upload is in no file: this test tests nothing")
	})
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside.ServeHTTP(w, r)
		outside = r.FormValue("name")
	}))
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	_ = form.WriteField("name", "value")
	part := redistest.Must(form.CreateFormFile("file", "large.bin"))(t)
	_, _ = io.Copy(part, strings.NewReader(strings.Repeat("x", 1<<20)))
	_ = form.Close()
	req := redistest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, &body))(t)
	req.Header.Set("Content-Type", form.FormDataContentType())
	if a := do(req); a.err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a.Response, a.err)
	}
	redistest.Eventually(t, "no temporary file left", func() bool { return files() == 0 })
	redistest.Expect(t, outside, "value", "a middleware outside sees the field as %q")
}

// A log outside of the cap names the route that a mux inside has found.
func TestOuterMiddlewareSeesThePattern(t *testing.T) {
	caps := captest.New(t, redistest.MiniClient(t), semaphore.Config{Limit: 1})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /panics/{id}", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	patterns := make(chan string, 10) // a client may repeat a GET whose connection broke
	inside := capped(t, caps, httpcap.Config{}, mux.ServeHTTP)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { patterns <- r.Pattern }()
		inside.ServeHTTP(w, r)
	}))
	wantStatus(t, url+"/users/7", http.StatusOK)
	redistest.Expect(t, <-patterns, "GET /users/{id}", "the pattern is %q outside")
	get(t.Context(), url+"/panics/7")
	redistest.Expect(t, <-patterns, "GET /panics/{id}", "the pattern is %q outside after a panic")
}
