package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/cmd/leasehold/page"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestLimitsAreSetOnlyWhereThatIsAllowed(t *testing.T) {
	const token = "0123456789abcdef"
	rdb := mini(t)
	if _, err := page.New(rdb, page.Options{Changes: true}); err == nil {
		t.Error("changes without a token are allowed")
	}
	s, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	post := func(at *httptest.Server, key, limit string, header ...string) int {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, at.URL+"/limit", strings.NewReader(url.Values{"key": {key}, "limit": {limit}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, _ := status(t, r)
		return resp.StatusCode
	}
	closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
	bearer := []string{"Authorization", "Bearer " + token}
	states := watchAs(t, open.URL+"/events", token)
	key := redistest.Get(t, "a state", states)["rows"].([]any)[0].(map[string]any)["id"].(string)
	for about, c := range map[string]struct{ got, want int }{
		"a page that only reads": {post(closed, key, "2", bearer...), http.StatusMethodNotAllowed},
		"without a token":        {post(open, key, "2"), http.StatusUnauthorized},
		"from another site":      {post(open, key, "2", append(bearer, "Sec-Fetch-Site", "cross-site")...), http.StatusForbidden},
		"an unknown key":         {post(open, "nope", "2", bearer...), http.StatusNotFound},
		"no number":              {post(open, key, "x", bearer...), http.StatusBadRequest},
		"too many":               {post(open, key, "100001", bearer...), http.StatusBadRequest},
	} {
		if c.want == http.StatusMethodNotAllowed && c.got == http.StatusNotFound {
			continue
		}
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", about, c.got, c.want)
		}
	}
	if _, err := s.TryAcquire(t.Context(), "acme"); err == nil {
		t.Fatal("the limit was set all the same")
	}
	if got := post(open, key, "2", bearer...); got != http.StatusNoContent {
		t.Fatalf("setting it: %d", got)
	}
	second, err := s.TryAcquire(t.Context(), "acme")
	if err != nil {
		t.Fatalf("after the raise: %v", err)
	}
	_, _ = l.Release(), second.Release()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A row of a key without a total is of that key, though there is a family of that name
// with a total.
func TestChangesAreOfTheRow(t *testing.T) {
	const token = "0123456789abcdef"
	rdb := mini(t)
	if err := rdb.HSet(t.Context(), "leasehold:sem:{exports}:limits", "", 200).Err(); err != nil {
		t.Fatal(err)
	}
	sem, err := semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	l, err := sem.Acquire(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, rdb, page.Options{Token: token, Changes: true})
	rows := redistest.Get(t, "a state", watchAs(t, s.URL+"/events", token))["rows"].([]any)
	if len(rows) != 1 {
		t.Fatalf("the rows are %v", rows)
	}
	key := rows[0].(map[string]any)["id"].(string)
	for path, form := range map[string]url.Values{
		"/limit": {"key": {key}, "limit": {"5"}}, "/revoke": {"key": {key}, "id": {l.ID()}, "reason": {"a test"}},
	} {
		r, err := http.NewRequest(http.MethodPost, s.URL+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+token)
		if resp, text := status(t, r); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	if limit := rdb.Get(t.Context(), "leasehold:sem:{exports:acme}:limit").Val(); limit != "5" {
		t.Errorf("the limit of the key is %q, want 5", limit)
	}
	redistest.Get(t, "the end of the Context", l.Context().Done())
	if err := sem.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLeasesAreRevokedOnlyWhereThatIsAllowed(t *testing.T) {
	const token = "0123456789abcdef"
	rdb := mini(t)
	for name, total := range map[string]int{"exports": 0, "shared": 9} {
		t.Run(name, func(t *testing.T) {
			s, err := semaphore.New(rdb, semaphore.Config{Name: name, Limit: 1, Total: total})
			if err != nil {
				t.Fatal(err)
			}
			l, err := s.Acquire(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
			post := func(at *httptest.Server, key, id, reason string, header ...string) int {
				t.Helper()
				r, err := http.NewRequest(http.MethodPost, at.URL+"/revoke", strings.NewReader(url.Values{"key": {key}, "id": {id}, "reason": {reason}}.Encode()))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				resp, _ := status(t, r)
				return resp.StatusCode
			}
			bearer := []string{"Authorization", "Bearer " + token}
			// Of a family with a total the lease is revoked on the row of the total, which
			// does not say of which key it is.
			key := ""
			for _, row := range redistest.Get(t, "a state", watchAs(t, open.URL+"/events?family="+name, token))["rows"].([]any) {
				if row := row.(map[string]any); total == 0 || row["scope"] == "total" {
					key = row["id"].(string)
				}
			}
			for about, c := range map[string]struct{ got, want int }{
				"a page that only reads": {post(closed, key, l.ID(), "r", bearer...), http.StatusMethodNotAllowed},
				"without a token":        {post(open, key, l.ID(), "r"), http.StatusUnauthorized},
				"from another site":      {post(open, key, l.ID(), "r", append(bearer, "Sec-Fetch-Site", "cross-site")...), http.StatusForbidden},
				"an unknown key":         {post(open, "nope", l.ID(), "r", bearer...), http.StatusNotFound},
				"an unknown lease":       {post(open, key, "AAAAAAAAAAAAAAAAAAAAAA.1", "r", bearer...), http.StatusNotFound},
				"no reason":              {post(open, key, l.ID(), "", bearer...), http.StatusBadRequest},
			} {
				if c.want == http.StatusMethodNotAllowed && c.got == http.StatusNotFound {
					continue
				}
				if c.got != c.want {
					t.Errorf("%s: %d, want %d", about, c.got, c.want)
				}
			}
			if err := l.Context().Err(); err != nil {
				t.Fatal("the lease was revoked all the same")
			}
			if got := post(open, key, l.ID(), "host is gone", bearer...); got != http.StatusNoContent {
				t.Fatalf("revoking it: %d", got)
			}
			redistest.Get(t, "the end of the Context", l.Context().Done())
			if why := context.Cause(l.Context()); !strings.Contains(why.Error(), "host is gone") {
				t.Errorf("the cause is %v", why)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
