package page_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/page"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

const token = "0123456789abcdef"

var bearer = []string{"Authorization", "Bearer " + token}

func change(t *testing.T, about string, want int, at *httptest.Server, path string, header []string, form ...string) {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	resp, text := post(t, at.URL+path, values, header...)
	redistest.Check(t, resp.StatusCode == want, "%s%s: %s, want %d: %s", path, about, resp.Status, want, text)
}

// hold makes a family of permits with one that is held, and the id of the row to change: of a
// family with a total that of the total, which does not say of which key the lease is.
func hold(t *testing.T, rdb *redis.Client, at *httptest.Server, name string, total int) (s *semaphore.Semaphore, l *semaphore.Lease, row string) {
	t.Helper()
	s = redistest.Must(semaphore.New(rdb, semaphore.Config{Name: name, Limit: 1, Total: total}))(t)
	l = redistest.Must(s.Acquire(t.Context(), "acme"))(t)
	for _, x := range redistest.Get(t, "a state", watch(t, at.URL+"/events?family="+name))["rows"].([]any) {
		if x := x.(map[string]any); total == 0 || x["scope"] == "total" {
			row = x["id"].(string)
		}
	}
	return s, l, row
}

func TestChangesAreMadeOnlyWhereThatIsAllowed(t *testing.T) {
	rdb := redistest.MiniClient(t)
	if _, err := page.New(rdb, page.Options{Changes: true}); err == nil {
		t.Error("changes without a token are allowed")
	}
	for name, total := range map[string]int{"exports": 0, "shared": 9} {
		t.Run(name, func(t *testing.T) {
			closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
			s, l, row := hold(t, rdb, open, name, total)
			for path, form := range map[string][]string{"/limit": {"limit", "2"}, "/revoke": {"id", l.ID(), "reason", "r"}} {
				of := append([]string{"key", row}, form...)
				change(t, " of a page that only reads", http.StatusNotFound, closed, path, bearer, of...)
				change(t, " without a token", http.StatusUnauthorized, open, path, nil, of...)
				change(t, " from another site", http.StatusForbidden, open, path, append(bearer, "Sec-Fetch-Site", "cross-site"), of...)
				change(t, " of an unknown key", http.StatusNotFound, open, path, bearer, append([]string{"key", "nope"}, form...)...)
			}
			change(t, " that is no number", http.StatusBadRequest, open, "/limit", bearer, "key", row, "limit", "x")
			change(t, " that is too high", http.StatusBadRequest, open, "/limit", bearer, "key", row, "limit", "1000001")
			change(t, " of an unknown lease", http.StatusNotFound, open, "/revoke", bearer, "key", row, "id", "AAAAAAAAAAAAAAAAAAAAAA.1", "reason", "r")
			change(t, " without a reason", http.StatusBadRequest, open, "/revoke", bearer, "key", row, "id", l.ID(), "reason", "")
			if _, err := s.TryAcquire(t.Context(), "acme"); err == nil || l.Context().Err() != nil {
				t.Fatalf("a change was made all the same: %v, %v", err, l.Context().Err())
			}
			change(t, "", http.StatusNoContent, open, "/limit", bearer, "key", row, "limit", "7")
			if total > 0 {
				state := redistest.Must(s.Inspect(t.Context(), "acme"))(t)
				redistest.Check(t, state.Total == 7, "the total is %d", state.Total)
			} else {
				redistest.WantErr(t, redistest.Must(s.TryAcquire(t.Context(), "acme"))(t).Release())
			}
			change(t, "", http.StatusNoContent, open, "/revoke", bearer, "key", row, "id", l.ID(), "reason", "host is gone")
			redistest.Get(t, "the end of the Context", l.Context().Done())
			var why *leasehold.RevokedError
			redistest.Check(t, errors.As(context.Cause(l.Context()), &why) && why.Reason == "host is gone",
				"the cause is %v", context.Cause(l.Context()))
			redistest.WantErr(t, s.Close(t.Context()))
		})
	}
}

// A row of a key without a total is of that key, though there is a family of that name with a total.
func TestChangesAreOfTheRow(t *testing.T) {
	rdb := redistest.MiniClient(t)
	redistest.WantErr(t, rdb.HSet(t.Context(), "leasehold:sem:{exports}:limits", "", 200).Err())
	at := serve(t, rdb, page.Options{Token: token, Changes: true})
	s, l, row := hold(t, rdb, at, "exports", 0)
	change(t, "", http.StatusNoContent, at, "/limit", bearer, "key", row, "limit", "5")
	change(t, "", http.StatusNoContent, at, "/revoke", bearer, "key", row, "id", l.ID(), "reason", "a test")
	redistest.Expect(t, rdb.Get(t.Context(), "leasehold:sem:{exports:acme}:limit").Val(), "5", "the limit of the key is %q")
	redistest.Get(t, "the end of the Context", l.Context().Done())
	redistest.WantErr(t, s.Close(t.Context()))
}
