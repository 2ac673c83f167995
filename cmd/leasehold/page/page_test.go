package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/page"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func serve(t *testing.T, rdb redis.UniversalClient, opt page.Options) *httptest.Server {
	t.Helper()
	p := redistest.Must(page.New(rdb, opt))(t)
	s := httptest.NewServer(p)
	t.Cleanup(func() { p.Close(); s.Close() })
	return s
}

// watch reads the states that a browser with the token gets, until the test ends or the stream.
func watch(t *testing.T, address string) <-chan map[string]any {
	t.Helper()
	r := redistest.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	resp := redistest.Must(client.Do(r))(t)
	t.Cleanup(func() { _ = resp.Body.Close() })
	redistest.CheckNow(t, resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "text/event-stream",
		"%s: %s", address, resp.Status)
	states := make(chan map[string]any, 100)
	go func() {
		defer close(states)
		for in := bufio.NewReader(resp.Body); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				var s map[string]any
				if json.Unmarshal([]byte(text), &s) == nil {
					states <- s
				}
			}
		}
	}()
	return states
}

// ask sends a request with pairs of words as its headers; "Host" is the name that it asks for.
func ask(t *testing.T, r *http.Request, header ...string) (*http.Response, string) {
	t.Helper()
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	resp := redistest.Must(http.DefaultTransport.RoundTrip(r))(t)
	defer resp.Body.Close()
	return resp, string(redistest.Must(io.ReadAll(resp.Body))(t))
}

func post(t *testing.T, address string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	r := redistest.Must(http.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode())))(t)
	return ask(t, r, append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}

func get(t *testing.T, address string, header ...string) (*http.Response, string) {
	t.Helper()
	return ask(t, redistest.Must(http.NewRequest(http.MethodGet, address, nil))(t), header...)
}

func TestNothingFromElsewhereAndNoFrames(t *testing.T) {
	s := serve(t, redistest.MiniClient(t), page.Options{})
	for _, path := range []string{"/", "/app.js", "/chart.js", "/login.js", "/style.css", "/icon.svg", "/nothing"} {
		resp, body := get(t, s.URL+path)
		policy := resp.Header.Get("Content-Security-Policy")
		redistest.Check(t, strings.Contains(policy, "default-src 'none'") && strings.Contains(policy, "frame-ancestors 'none'") && !strings.Contains(policy, "unsafe") &&
			resp.Header.Get("X-Frame-Options") == "DENY" && resp.Header.Get("X-Content-Type-Options") == "nosniff", "%s: headers are %v", path, resp.Header)
		redistest.Check(t, path == "/nothing" || resp.StatusCode == http.StatusOK, "%s: %s", path, resp.Status)
		redistest.Check(t, !strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), "http") || path == "/nothing",
			"%s names an address elsewhere", path)
	}
}

func TestTokenAndOriginAreChecked(t *testing.T) {
	rdb := redistest.MiniClient(t)
	_, err := page.New(rdb, page.Options{Token: "short"})
	redistest.Check(t, err != nil && strings.Contains(err.Error(), "at least 16"), "a short token: %v", err)
	s := serve(t, rdb, page.Options{Token: token})
	for given, want := range map[string]int{
		"": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized, "Bearer 0123456789abcdeF": http.StatusUnauthorized,
		"Basic " + token: http.StatusUnauthorized, "Bearer " + token: http.StatusBadRequest,
	} {
		resp, _ := get(t, s.URL+"/events?kind=nope", "Authorization", given)
		redistest.Check(t, resp.StatusCode == want, "with %q: %s", given, resp.Status)
	}
	resp, body := get(t, s.URL)
	redistest.Check(t, resp.StatusCode == http.StatusOK && strings.Contains(body, `id="login"`), "the page without a token: %s %s", resp.Status, body)
	login := func(given string, header ...string) *http.Response {
		resp, _ := post(t, s.URL+"/login", url.Values{"token": {given}}, header...)
		return resp
	}
	for about, resp := range map[string]*http.Response{
		"a wrong token": login("wrong"), "from another site": login(token, "Sec-Fetch-Site", "cross-site"),
		"from another origin": login(token, "Origin", "http://evil.example"),
	} {
		redistest.Check(t, resp.StatusCode == http.StatusForbidden && len(resp.Cookies()) == 0, "%s: %s", about, resp.Status)
	}
	resp = login(token)
	redistest.CheckNow(t, resp.StatusCode == http.StatusSeeOther && len(resp.Cookies()) == 1 && resp.Header.Get("Location") == "./",
		"the token: %s %v", resp.Status, resp.Header)
	c := resp.Cookies()[0]
	redistest.Check(t, c.HttpOnly && c.SameSite == http.SameSiteStrictMode && !strings.Contains(c.Value, token),
		"the cookie is %v", c)
	resp, body = get(t, s.URL, "Cookie", c.Name+"="+c.Value)
	redistest.Check(t, resp.StatusCode == http.StatusOK && strings.Contains(body, `id="families"`), "with the cookie: %s", resp.Status)
}

// A page of somebody else's, whose name points to this machine, reads nothing.
func TestOtherNamesAreRefused(t *testing.T) {
	s := serve(t, redistest.MiniClient(t), page.Options{Hosts: []string{"localhost", "127.0.0.1", "::1"}})
	for host, want := range map[string]int{
		"localhost:80": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:1": http.StatusOK, "LOCALHOST": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "127.0.0.1.evil.example:80": http.StatusMisdirectedRequest,
	} {
		resp, _ := get(t, s.URL, "Host", host)
		redistest.Check(t, resp.StatusCode == want, "%s: %s", host, resp.Status)
	}
}

// A service mounts the page. Its bound of requests ends no stream, and Close ends all of them.
func TestMountedBelowAPath(t *testing.T) {
	t.Parallel()
	p := redistest.Must(page.New(redistest.MiniClient(t), page.Options{}))(t)
	mux := http.NewServeMux()
	mux.Handle("/leases/", http.StripPrefix("/leases", p))
	s := httptest.NewUnstartedServer(mux)
	s.Config.ReadTimeout = 500 * time.Millisecond
	s.Start()
	defer s.Close()
	defer p.Close()
	resp, body := get(t, s.URL+"/leases/")
	redistest.Check(t, resp.StatusCode == http.StatusOK && !strings.Contains(body, `="/`),
		"%s, with absolute paths: %v", resp.Status, strings.Contains(body, `="/`))
	resp, _ = get(t, s.URL+"/leases/app.js")
	redistest.Expect(t, resp.StatusCode, http.StatusOK, "app.js: %d")
	states := watch(t, s.URL+"/leases/events")
	for range 3 {
		redistest.CheckNow(t, redistest.Get(t, "a state", states) != nil, "the stream has ended")
	}
	p.Close()
	redistest.Eventually(t, "the end of the stream", func() bool {
		_, open := <-states
		return !open
	})
}

// A client that never sends the rest of its request does not stay in a server that has no bound of its own.
func TestHalfARequestEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, redistest.MiniClient(t), page.Options{})
	c := redistest.Must(net.Dial("tcp", s.Listener.Addr().String()))(t)
	defer c.Close()
	redistest.Must(fmt.Fprint(c, "POST /login HTTP/1.1\r\nHost: page\r\nContent-Length: 1000\r\n\r\ntoken="))(t)
	ended := make(chan error, 1)
	go func() { ended <- redistest.ErrorOf(io.ReadAll(c)) }()
	redistest.WantErr(t, redistest.Get(t, "the end of the connection", ended))
}

func fill(t *testing.T, rdb redis.UniversalClient, n, others int) {
	t.Helper()
	ends := float64(time.Now().Add(5 * time.Minute).UnixMilli())
	pipe := rdb.Pipeline()
	for i := range n {
		pipe.ZAdd(t.Context(), fmt.Sprintf("leasehold:sem:{n:%d}:holders", i), redis.Z{Score: ends, Member: "AbCdEfGh_-0123456789xy.1.1.300000.4"})
	}
	for i := range others {
		pipe.Set(t.Context(), fmt.Sprint("other:", i), i, 0)
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
}

// A HEAD has no stream, which would hold up what comes next on its connection.
func TestHeadOfTheEventsEnds(t *testing.T) {
	s := serve(t, redistest.MiniClient(t), page.Options{})
	client := &http.Client{Timeout: redistest.Soon, Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for range 2 {
		resp := redistest.Must(client.Head(s.URL + "/events"))(t)
		redistest.Expect(t, resp.StatusCode, http.StatusOK, "the status is %d")
	}
}

// Ten browsers cost the server what one costs, and nobody's cost nothing, with 10,000 keys among 100,000 others.
func TestTenBrowsersCostWhatOneCosts(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartServer(t, redistest.Newest(t)).Client()
	fill(t, rdb, 10_000, 100_000)
	s := serve(t, rdb, page.Options{})
	commands := func() (n int64) {
		for _, c := range redistest.Commandstats(t, rdb) {
			n += c
		}
		return n
	}
	one := watch(t, s.URL+"/events")
	over := func() int64 { // four polls; a state comes after each
		for len(one) > 0 {
			<-one
		}
		for range 2 { // the first may be that of a browser that came
			redistest.Get(t, "a state", one)
		}
		before := commands()
		for range 4 {
			redistest.Get(t, "a state", one)
		}
		return commands() - before
	}
	redistest.Get(t, "a state", one)
	alone := over()
	for range 9 {
		redistest.Get(t, "a state", watch(t, s.URL+"/events"))
	}
	together := over()
	redistest.Check(t, together <= alone*13/10, "ten browsers cost %d commands, one %d", together, alone)
}

// A tenant of a family with a total that has gone idle holds nothing any more, whether or not its row is shown.
func TestIdleTenantsHoldNothing(t *testing.T) {
	t.Parallel()
	for about, others := range map[string]int{"all keys are polled": 0, "what is shown is polled": 600} {
		t.Run(about, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.MiniClient(t)
			fill(t, rdb, others, 0)
			sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 5, Total: 5}))(t)
			acme := redistest.Must(sem.AcquireN(t.Context(), "acme", 5))(t)
			s := serve(t, rdb, page.Options{})
			states := watch(t, s.URL+"/events?family=exports&rows=1")
			var inUse, waiting float64
			look := func() {
				for _, f := range redistest.Get(t, "a state", states)["families"].([]any) {
					if f := f.(map[string]any); f["name"] == "exports" {
						inUse, waiting = f["inUse"].(float64), f["waiting"].(float64)
					}
				}
			}
			look()
			redistest.CheckNow(t, inUse == 5, "%v permits are in use, want 5", inUse)
			granted := make(chan *semaphore.Lease, 1)
			go func() {
				l, err := sem.AcquireN(t.Context(), "globex", 4)
				redistest.NoError(t, err)
				granted <- l
			}()
			redistest.Eventually(t, "a waiter", func() bool { look(); return waiting == 1 })
			redistest.WantErr(t, acme.Release())
			globex := redistest.Get(t, "the other tenant's turn", granted)
			for range 3 { // a state may be from before
				look()
			}
			redistest.Check(t, inUse == 4 && waiting == 0, "%v permits of 5 are in use, and %v wait; want 4 and none", inUse, waiting)
			_ = globex.Release()
			redistest.WantErr(t, sem.Close(t.Context()))
		})
	}
}

// A page whose Redis is away says so, and goes on when it is back.
func TestOutageIsSaid(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	s := serve(t, p.Client(func(o *redis.Options) { o.DialTimeout, o.MaxRetries = 200*time.Millisecond, -1 }), page.Options{})
	states := watch(t, s.URL+"/events")
	trouble := func() bool { return redistest.Get(t, "a state", states)["error"] != nil }
	redistest.CheckNow(t, !trouble(), "trouble at once")
	p.Refuse(true)
	p.CloseAll()
	redistest.Eventually(t, "the trouble", trouble)
	p.Refuse(false)
	redistest.Eventually(t, "its end", func() bool { return !trouble() })
}

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
		if x := x.(map[string]any); (x["scope"] == "total") == (total > 0) {
			row = x["id"].(string)
		}
	}
	return s, l, row
}

// A row is of a family with a total, or of a key without one, though there are both of one name.
func TestChangesAreMadeOnlyWhereThatIsAllowed(t *testing.T) {
	rdb := redistest.MiniClient(t)
	redistest.Check(t, redistest.ErrorOf(page.New(rdb, page.Options{Changes: true})) != nil, "changes without a token are allowed")
	for _, total := range []int{9, 0} {
		t.Run(fmt.Sprint(total), func(t *testing.T) {
			closed, open := serve(t, rdb, page.Options{Token: token}), serve(t, rdb, page.Options{Token: token, Changes: true})
			s, l, row := hold(t, rdb, open, "exports", total)
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
			err := redistest.ErrorOf(s.TryAcquire(t.Context(), "acme"))
			redistest.CheckNow(t, err != nil && l.Context().Err() == nil, "a change was made all the same: %v, %v", err, l.Context().Err())
			change(t, "", http.StatusNoContent, open, "/limit", bearer, "key", row, "limit", "7")
			if total > 0 {
				state := redistest.Must(s.Inspect(t.Context(), "acme"))(t)
				redistest.Check(t, state.Total == 7, "the total is %d", state.Total)
			} else {
				redistest.WantErr(t, redistest.Must(s.TryAcquire(t.Context(), "acme"))(t).Release())
			}
			change(t, "", http.StatusNoContent, open, "/revoke", bearer, "key", row, "id", l.ID(), "reason", "host is gone")
			redistest.Get(t, "the end of the Context", l.Context().Done())
			redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrRevoked, redistest.Says("host is gone"))
			redistest.WantErr(t, s.Close(t.Context()))
		})
	}
}

// A user without a right is told so, and that nothing was done.
func TestChangesThatLackARight(t *testing.T) {
	server := redistest.StartServer(t, redistest.Newest(t))
	redistest.WantErr(t, server.Client().ACLSetUser(t.Context(), "less", "reset", "on", ">secret", "~*", "&*", "+@all", "-@scripting").Err())
	at := serve(t, server.Client(func(o *redis.Options) { o.Username, o.Password = "less", "secret" }), page.Options{Token: token, Changes: true})
	s, _, row := hold(t, server.Client(), at, "exports", 0)
	for path, form := range map[string]url.Values{
		"/limit": {"key": {row}, "limit": {"2"}}, "/revoke": {"key": {row}, "id": {"AAAAAAAA-1"}, "reason": {"r"}},
	} {
		resp, said := post(t, at.URL+path, form, bearer...)
		redistest.Check(t, resp.StatusCode == http.StatusForbidden && strings.Contains(said, "nothing was done"), "%s: %s: %s", path, resp.Status, said)
	}
	redistest.WantErr(t, s.Close(t.Context()))
}
