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
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1}))(t)
	l := redistest.Must(s.Acquire(t.Context(), "acme"))(t)
	set := func(at *httptest.Server, key, limit string, header ...string) int {
		t.Helper()
		resp, _ := post(t, at.URL+"/limit", url.Values{"key": {key}, "limit": {limit}}, header...)
		return resp.StatusCode
	}
	closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
	bearer := []string{"Authorization", "Bearer " + token}
	states := watchAs(t, open.URL+"/events", token)
	key := redistest.Get(t, "a state", states)["rows"].([]any)[0].(map[string]any)["id"].(string)
	for about, c := range map[string]struct{ got, want int }{
		"a page that only reads": {set(closed, key, "2", bearer...), http.StatusNotFound},
		"without a token":        {set(open, key, "2"), http.StatusUnauthorized},
		"from another site":      {set(open, key, "2", append(bearer, "Sec-Fetch-Site", "cross-site")...), http.StatusForbidden},
		"an unknown key":         {set(open, "nope", "2", bearer...), http.StatusNotFound},
		"no number":              {set(open, key, "x", bearer...), http.StatusBadRequest},
		"too many":               {set(open, key, "100001", bearer...), http.StatusBadRequest},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", about, c.got, c.want)
		}
	}
	if _, err := s.TryAcquire(t.Context(), "acme"); err == nil {
		t.Fatal("the limit was set all the same")
	}
	if got := set(open, key, "2", bearer...); got != http.StatusNoContent {
		t.Fatalf("setting it: %d", got)
	}
	second, err := s.TryAcquire(t.Context(), "acme")
	if err != nil {
		t.Fatalf("after the raise: %v", err)
	}
	_, _ = l.Release(), second.Release()
	redistest.WantErr(t, s.Close(t.Context()))
}

// A row of a key without a total is of that key, though there is a family of that name
// with a total.
func TestChangesAreOfTheRow(t *testing.T) {
	const token = "0123456789abcdef"
	rdb := mini(t)
	redistest.WantErr(t, rdb.HSet(t.Context(), "leasehold:sem:{exports}:limits", "", 200).Err())
	sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1}))(t)
	l := redistest.Must(sem.Acquire(t.Context(), "acme"))(t)
	s := serve(t, rdb, page.Options{Token: token, Changes: true})
	rows := redistest.Get(t, "a state", watchAs(t, s.URL+"/events", token))["rows"].([]any)
	if len(rows) != 1 {
		t.Fatalf("the rows are %v", rows)
	}
	key := rows[0].(map[string]any)["id"].(string)
	for path, form := range map[string]url.Values{
		"/limit": {"key": {key}, "limit": {"5"}}, "/revoke": {"key": {key}, "id": {l.ID()}, "reason": {"a test"}},
	} {
		if resp, text := post(t, s.URL+path, form, "Authorization", "Bearer "+token); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	if limit := rdb.Get(t.Context(), "leasehold:sem:{exports:acme}:limit").Val(); limit != "5" {
		t.Errorf("the limit of the key is %q, want 5", limit)
	}
	redistest.Get(t, "the end of the Context", l.Context().Done())
	redistest.WantErr(t, sem.Close(t.Context()))
}

func TestLeasesAreRevokedOnlyWhereThatIsAllowed(t *testing.T) {
	const token = "0123456789abcdef"
	rdb := mini(t)
	for name, total := range map[string]int{"exports": 0, "shared": 9} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: name, Limit: 1, Total: total}))(t)
			l := redistest.Must(s.Acquire(t.Context(), "acme"))(t)
			closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
			revoke := func(at *httptest.Server, key, id, reason string, header ...string) int {
				t.Helper()
				resp, _ := post(t, at.URL+"/revoke", url.Values{"key": {key}, "id": {id}, "reason": {reason}}, header...)
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
				"a page that only reads": {revoke(closed, key, l.ID(), "r", bearer...), http.StatusNotFound},
				"without a token":        {revoke(open, key, l.ID(), "r"), http.StatusUnauthorized},
				"from another site":      {revoke(open, key, l.ID(), "r", append(bearer, "Sec-Fetch-Site", "cross-site")...), http.StatusForbidden},
				"an unknown key":         {revoke(open, "nope", l.ID(), "r", bearer...), http.StatusNotFound},
				"an unknown lease":       {revoke(open, key, "AAAAAAAAAAAAAAAAAAAAAA.1", "r", bearer...), http.StatusNotFound},
				"no reason":              {revoke(open, key, l.ID(), "", bearer...), http.StatusBadRequest},
			} {
				if c.got != c.want {
					t.Errorf("%s: %d, want %d", about, c.got, c.want)
				}
			}
			if err := l.Context().Err(); err != nil {
				t.Fatal("the lease was revoked all the same")
			}
			if got := revoke(open, key, l.ID(), "host is gone", bearer...); got != http.StatusNoContent {
				t.Fatalf("revoking it: %d", got)
			}
			redistest.Get(t, "the end of the Context", l.Context().Done())
			if why := context.Cause(l.Context()); !strings.Contains(why.Error(), "host is gone") {
				t.Errorf("the cause is %v", why)
			}
			redistest.WantErr(t, s.Close(t.Context()))
		})
	}
}
