package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shownPage runs the program with its page, and returns the page's address. At the
// end of the test it is interrupted.
func shownPage(t *testing.T, args ...string) string {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	set, err := parse(append([]string{"-addr", "127.0.0.1:0"}, args...), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := show(ctx, set, write)
		_ = write.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		interrupt()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("interrupted, it ends with %v", err)
			}
		case <-time.After(15 * time.Second):
			t.Error("interrupted, it goes on")
		}
	})
	lines := bufio.NewReader(read)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`http://[^ ]+`).FindString(line); found != "" {
			return found
		}
	}
}

func post(t *testing.T, address string, form url.Values, origin string, want int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		t.Errorf("POST %s %v: %s; want %d", address, form, res.Status, want)
	}
}

func TestPage(t *testing.T) {
	page := shownPage(t, "-processes", "2", "-clients", "15", "-ttl", "400ms", "-load", "100ms")
	for path, kind := range map[string]string{
		"/": "text/html", "/app.js": "text/javascript", "/chart.js": "text/javascript",
		"/style.css": "text/css", "/icon.svg": "image/svg+xml", "/settings": "application/json",
	} {
		res, err := http.Get(page + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.HasPrefix(got, kind) {
			t.Errorf("%s: %s, %s", path, res.Status, got)
		}
		if !strings.Contains(res.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy", path)
		}
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	pictures := bufio.NewScanner(res.Body)
	pictures.Buffer(nil, 1<<20)
	until := func(what string, wanted func(picture) bool) (p picture) {
		t.Helper()
		limit := time.Now().Add(15 * time.Second)
		for pictures.Scan() && time.Now().Before(limit) {
			data, is := strings.CutPrefix(pictures.Text(), "data: ")
			if !is {
				continue
			}
			p = picture{}
			if err := json.Unmarshal([]byte(data), &p); err != nil {
				t.Fatal(err)
			}
			if wanted(p) {
				return p
			}
		}
		t.Fatalf("never seen: %s; last: %+v", what, p)
		return p
	}

	p := until("two expiries", func(p picture) bool { return p.Mode == on && p.Expiries >= 2 && p.Rate > 0 })
	if p.Loads != p.Expiries || p.Total.Waits == 0 || p.Total.Errors != 0 || len(p.Processes) != 2 {
		t.Errorf("protected: %+v", p)
	}
	post(t, page+"/mode", url.Values{"mode": {"off"}}, "http://elsewhere.example", http.StatusForbidden)
	post(t, page+"/mode", url.Values{"mode": {"sideways"}}, page, http.StatusBadRequest)
	post(t, page+"/mode", url.Values{"mode": {"off"}}, page, http.StatusNoContent)
	until("a stampede", func(p picture) bool { return p.Mode == off && p.PerExpiry > 3 })
	post(t, page+"/mode", url.Values{"mode": {"on+stale"}}, page, http.StatusNoContent)
	until("stale values", func(p picture) bool { return p.Mode == onStale && p.Total.Stale > 0 })
	post(t, page+"/invalidate", nil, page, http.StatusNoContent)
	p = until("two more", func(p picture) bool { return p.Expiries > 4 })
	if p.Loads != p.Expiries || p.Total.Errors != 0 {
		t.Errorf("invalidated: %+v", p)
	}
}
