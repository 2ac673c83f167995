// Package browsertest opens the page in a browser, with leases that are held, keys
// of hostile names, and ten thousand of them.
package browsertest

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-go/leasehold/cmd/leasehold/page"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// serve serves a page of a prefix of its own, on a real server where tests on servers are asked for.
func serve(t *testing.T, opt page.Options) (rdb *redis.Client, url string) {
	t.Helper()
	chromium(t) // without one the test is skipped here, before it holds anything
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") == "1" {
		rdb = redistest.Shared(t, redistest.Newest(t)).Client()
	} else {
		rdb = redistest.MiniClient(t)
	}
	p := redistest.Must(page.New(rdb, opt))(t)
	s := httptest.NewServer(p)
	t.Cleanup(func() { p.Close(); s.Close() })
	return rdb, s.URL + "/"
}

const (
	ready    = `document.body !== null && document.body.dataset.ready === "1"`
	rows     = `document.querySelectorAll("#rows tr").length`
	rowText  = `[...document.querySelectorAll("#rows tr")].map((r) => r.innerText).join("\n")`
	detailed = `!document.getElementById("detail").hidden`
)

// Someone on call looks for a key, opens it, and sees who holds and who waits, as it changes.
func TestFindingWhoHoldsAKey(t *testing.T) {
	prefix := redistest.Name(t)
	rdb, url := serve(t, page.Options{Prefix: prefix})
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Prefix: prefix, Limit: 3}))(t)
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: prefix, KeepFor: time.Second}))(t)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	var held []*semaphore.Lease
	for _, key := range []string{"acme", "acme", "acme", "globex"} {
		l := redistest.Must(s.Acquire(t.Context(), key))(t)
		held = append(held, l)
	}
	lock := redistest.Must(m.Lock(t.Context(), "nightly"))(t)
	defer lock.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, "acme")
		waited <- err
	}()
	redistest.Eventually(t, "a waiter", func() bool { return rdb.ZCard(t.Context(), prefix+":sem:{exports:acme}:queue").Val() == 1 })

	b := open(t, url)
	b.until("three rows", rows+` === 3`)
	b.until("two families", `document.querySelectorAll(".card").length === 2`)
	first := ask[string](b, `document.querySelector("#rows tr").innerText`)
	redistest.Check(t, contains(first, "acme", "3 / 3", "1"), "the first row, with its waiter, is %q", first)
	b.press("/") // the search has the focus now
	b.press("acm")
	b.until("one row", rows+` === 1`)
	b.press(enter)
	b.press(enter)
	b.until("the details", detailed+` && document.querySelectorAll("#d-holders tbody tr").length === 3`)
	text := ask[string](b, `document.getElementById("detail").innerText`)
	redistest.Check(t, contains(text, "exports / acme", "3 of 3 in use, 1 waiting", held[0].ID(), held[1].ID(), held[2].ID()),
		"the details are %q", text)
	cancel()
	<-waited
	redistest.WantErr(t, held[0].Release())
	b.until("two holders and no waiter", `document.querySelectorAll("#d-holders tbody tr").length === 2 && document.querySelectorAll("#d-waiters tbody tr").length === 0`)
	b.press(escape)
	b.until("closed details", `document.getElementById("detail").hidden`)
	redistest.Check(t, ask[bool](b, `document.activeElement.closest("tr") !== null`), "the focus is not on the row again")
	ask[bool](b, `(location.hash = "", true)`)
	b.until("all rows again", rows+` === 3`)
	b.press(down)
	b.press(down)
	b.press(enter)
	b.until("details by keyboard", detailed)
	ask[bool](b, `(document.querySelector('#kinds [data-kind="mutex"]').click(), true)`)
	b.until("the lock alone", rows+` === 1 && `+rowText+`.includes("nightly") && document.querySelector("#rows .note").textContent === "may be idle"`)
	ask[bool](b, `(document.querySelector("#rows .open").click(), true)`)
	b.until("the details of the lock", detailed+` && document.getElementById("d-holders").innerText.includes("(may be idle)")`)
	b.noFaults()
	for _, l := range held[1:] {
		_ = l.Release()
	}
}

func contains(text string, all ...string) bool {
	for _, want := range all {
		if !strings.Contains(text, want) {
			return false
		}
	}
	return true
}

// Names and labels that others chose do nothing but stand there.
func TestHostileNamesAreShownHarmlessly(t *testing.T) {
	prefix := redistest.Name(t)
	rdb, url := serve(t, page.Options{Prefix: prefix})
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: `<script>alert(1)</script>`, Prefix: prefix, Limit: 2}))(t)
	for _, key := range []string{`<img src=x onerror="document.title='owned'">`, `"><svg/onload=alert(1)>`, "\u202eesrever", "\x1b[31m\x00", "' onmouseover='x"} {
		l := redistest.Must(s.Acquire(t.Context(), key))(t)
		defer l.Release()
	}
	label := "AbCdEfGh_-0123456789xy~<img%20src=x%20onerror=alert(1)>.1.1.60000.2"
	rdb.ZAdd(t.Context(), prefix+":sem:{x:labelled}:holders", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: label})
	b := open(t, url)
	b.until("six rows", rows+` === 6`)
	text := ask[string](b, rowText)
	redistest.Check(t, contains(text, `<img src=x onerror="document.title='owned'">`, `\u202eesrever`, `\x1b[31m\x00`),
		"the rows are %q", text)
	ask[bool](b, `([...document.querySelectorAll("#rows .open")].find((e) => e.innerText.includes("labelled")).click(), true)`)
	b.until("the label", detailed+` && document.getElementById("d-holders").innerText.includes("<img src=x onerror=alert(1)>")`)
	redistest.Expect(t, ask[int](b, `document.querySelectorAll("main img, aside img, main script, main svg[onload]").length`), 0, "%d elements came out of names")
	redistest.Expect(t, ask[string](b, `document.title`), "leasehold", "the title is %q")
	b.noFaults()
}

func TestTokenIsAskedFor(t *testing.T) {
	const token = "0123456789abcdefg"
	prefix := redistest.Name(t)
	_, url := serve(t, page.Options{Prefix: prefix, Token: token})
	b := open(t, url)
	b.until("the question", `document.getElementById("token") !== null`)
	b.press(token)
	b.press(enter)
	b.until("the page", ready)
	b.noFaults()
	linked := open(t, url+"#token="+token)
	linked.until("the page by a link", ready)
	at := ask[string](linked, `location.href`)
	redistest.Check(t, !strings.Contains(at, token), "the token stays in the address: %s", at)
	linked.noFaults()
}

// A limit is set, and a lease revoked for a reason, after a question, and not where the answer is no.
func TestChangesAreMadeAfterAQuestion(t *testing.T) {
	const token = "0123456789abcdefg"
	prefix := redistest.Name(t)
	rdb, url := serve(t, page.Options{Prefix: prefix, Token: token, Changes: true})
	s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Prefix: prefix, Limit: 3}))(t)
	l := redistest.Must(s.Acquire(t.Context(), "acme"))(t)
	b := open(t, url+"#token="+token)
	b.until("a row", ready+` && `+rows+` === 1`)
	ask[bool](b, `(document.querySelector("#rows .open").click(), true)`)
	b.until("the limit and the button", detailed+` && document.getElementById("d-limit-n").value === "3" && document.querySelectorAll("#d-holders .revoke").length === 1`)
	answer := func(begin, question, with string) {
		t.Helper()
		ask[bool](b, `(`+begin+`, true)`)
		b.until("the question", `document.getElementById("sure").open && document.getElementById("sure-what").innerText.startsWith("`+question+`")`)
		ask[bool](b, `(document.getElementById("sure-reason").value = "host is gone", true)`)
		ask[bool](b, `(document.querySelector('#sure button[value="`+with+`"]').click(), true)`)
		b.until("no question", `!document.getElementById("sure").open`)
	}
	limit := func(with string) {
		answer(`document.getElementById("d-limit-n").value = "7", document.getElementById("d-limit").requestSubmit()`, "Set the limit of exports / acme to 7?", with)
	}
	revoke := func(with string) {
		answer(`document.querySelector("#d-holders .revoke").click()`, "Revoke the ", with)
	}
	limit("no")
	revoke("no")
	set := rdb.Exists(t.Context(), prefix+":sem:{exports:acme}:limit").Val()
	redistest.CheckNow(t, set == 0 && l.Context().Err() == nil, "a change is made without a yes: %d, %v", set, l.Context().Err())
	limit("yes")
	b.until("that it is set", `document.getElementById("d-limit-said").innerText === "It is set." && document.getElementById("d-summary").innerText.includes("1 of 7")`)
	revoke("yes")
	b.until("that it is revoked", `document.getElementById("d-revoke-said").innerText.endsWith("is revoked.")`)
	redistest.Get(t, "the end of the Context", l.Context().Done())
	redistest.WantErr(t, context.Cause(l.Context()), leasehold.ErrRevoked, redistest.Says("host is gone"))
	b.noFaults()
}

// Ten thousand keys: the page is there soon, and answers quickly.
func TestTenThousandKeysAreUsable(t *testing.T) {
	if os.Getenv("LEASEHOLD_REQUIRE_SERVERS") != "1" {
		t.Skip("the embedded server takes longer to list ten thousand keys than the page waits")
	}
	prefix := redistest.Name(t)
	rdb, url := serve(t, page.Options{Prefix: prefix})
	ends := float64(time.Now().Add(5 * time.Minute).UnixMilli())
	pipe := rdb.Pipeline()
	for i := range 10_000 {
		pipe.ZAdd(t.Context(), fmt.Sprintf("%s:sem:{tenants:tenant-%05d}:holders", prefix, i), redis.Z{Score: ends, Member: "AbCdEfGh_-0123456789xy.1.1.300000.4"})
	}
	redistest.Must(pipe.Exec(t.Context()))(t)
	began := time.Now()
	b := open(t, url)
	b.until("rows", rows+` === 50`)
	t.Logf("shown after %v", time.Since(began))
	began = time.Now()
	b.press("/")
	b.press("tenant-07777")
	b.until("the one", rows+` === 1 && `+rowText+`.includes("tenant-07777")`)
	t.Logf("found after %v", time.Since(began))
	b.press(escape)
	b.until("all again", rows+` === 50`)
	for range 4 {
		ask[bool](b, `(document.getElementById("more").click(), true)`)
	}
	b.until("500 rows", rows+` === 500`)
	ask[bool](b, `(window.busy = [0, 0, 0], new PerformanceObserver((l) => { for (const e of l.getEntries()) window.busy.push(e.duration) }).observe({type: "longtask"}), true)`)
	time.Sleep(6 * time.Second) // states come once a second
	// A pause of the machine makes one task long, or two, that otherwise are not.
	busy := ask[[]float64](b, `window.busy.sort((x, y) => y - x)`)
	redistest.Check(t, busy[2] <= 500 && busy[0] <= 3000, "the page stands still for so many ms at a time: %v", busy)
	b.noFaults()
}

// Nothing reaches beyond the edge of a phone, and details fill it.
func TestPhone(t *testing.T) {
	prefix := redistest.Name(t)
	rdb, url := serve(t, page.Options{Prefix: prefix})
	busy(t, rdb, prefix)
	now := time.Now()
	rdb.ZAdd(t.Context(), prefix+":mtx:{jobs:stuck}:holders", redis.Z{Score: float64(now.Add(10 * time.Minute).UnixMilli()), Member: "AbCdEfGh_-0123456789xy~node-9.1.1.30000.1"})
	rdb.Set(t.Context(), prefix+":mtx:{jobs:stuck}:fence", now.Add(-65*time.Minute).UnixMicro(), time.Hour)
	b := open(t, url)
	fits := func(where string) {
		t.Helper()
		b.until("the holder that hangs, and what is usual, "+where, `[...document.querySelectorAll("#rows tr.hangs .held")].some(e => e.offsetWidth > 0 && e.innerText.startsWith("1 h ") && e.innerText.includes("usual"))`)
		wide := ask[[]string](b, `[...document.querySelectorAll("#list td.num, #list th.num")].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)`)
		redistest.Check(t, len(wide) == 0, "%s: figures do not fit their columns: %q", where, wide)
	}
	b.do(chromedp.EmulateViewport(390, 844))
	b.until("rows", rows+` > 10`)
	fits("on a phone")
	redistest.AtMost(t, ask[int](b, `document.documentElement.scrollWidth`), 390, "it is %d wide on a phone")
	if os.Getenv("LEASEHOLD_SCREENSHOTS") != "" {
		time.Sleep(100 * time.Second) // for curves in the pictures
	}
	b.shoot("phone")
	ask[bool](b, `(document.querySelector("#rows .open").click(), true)`)
	b.until("details", detailed)
	redistest.Expect(t, ask[int](b, `document.getElementById("detail").offsetWidth`), 390, "details are %d wide")
	// A head that is hidden is one that the list alone can do without.
	hidden := ask[int](b, `[...document.querySelectorAll("#detail th")].filter(h => h.textContent && !h.offsetWidth && h.closest("table").offsetWidth).length`)
	redistest.Expect(t, hidden, 0, "%d heads of the details are hidden")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.until("details beside", `document.getElementById("detail").offsetWidth === 440`)
	fits("beside details")
	ask[bool](b, `(document.getElementById("d-close").click(), true)`)
	b.until("closed", `document.getElementById("detail").hidden`)
	fits("alone")
	b.shoot("page")
	b.noFaults()
}

func busy(t *testing.T, rdb *redis.Client, prefix string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- demo.Run(ctx, rdb, prefix) }()
	t.Cleanup(func() {
		cancel()
		redistest.WantErr(t, <-done)
	})
}

// No label of a picture lies upon another one, or beyond the edge.
func TestPicturesOfTheDocuments(t *testing.T) {
	pictures, err := filepath.Glob("../../../../docs/*.svg")
	more, _ := filepath.Glob("../../../../docs/*/*.svg")
	pictures = append(pictures, more...)
	redistest.CheckNow(t, err == nil && len(pictures) >= 3, "%v, %q", err, pictures)
	for _, picture := range pictures {
		path := redistest.Must(filepath.Abs(picture))(t)
		b := open(t, "file://"+path)
		upon := ask[[]string](b, `(() => {
			const edge = document.documentElement.getBoundingClientRect(), found = [];
			const all = [...document.querySelectorAll("text")].filter(e => e.textContent.trim()).map(e => [e.textContent, e.getBoundingClientRect()]);
			all.forEach(([text, r], i) => {
				if (r.left < edge.left - 1 || r.right > edge.right + 1 || r.bottom > edge.bottom + 1) found.push(text + " beyond the edge");
				for (const [other, o] of all.slice(0, i)) {
					const wide = Math.min(r.right, o.right) - Math.max(r.left, o.left), high = Math.min(r.bottom, o.bottom) - Math.max(r.top, o.top);
					if (wide > 2 && high > Math.min(r.height, o.height) / 2) found.push(text + " upon " + other);
				}
			});
			return found;
		})()`)
		redistest.Check(t, len(upon) <= 0, "%s: %q", picture, upon)
	}
}

// One goes through the page of examples/hotkey as a user that sees it for the first time
// would. The program, which this test builds, runs until it is interrupted.
func TestHotkey(t *testing.T) {
	chromium(t)
	bin := filepath.Join(t.TempDir(), "hotkey")
	build := exec.Command("go", "build", "-o", bin, "./examples/hotkey")
	build.Dir = "../../../.." // the library's module
	out, err := build.CombinedOutput()
	redistest.CheckNow(t, err == nil, "go build: %v\n%s", err, out)
	cmd := exec.Command(bin, "-addr", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout := redistest.Must(cmd.StdoutPipe())(t)
	redistest.WantErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		redistest.Expect(t, cmd.Wait(), nil, "the interrupted program: %v")
	})
	address := ""
	for lines := bufio.NewScanner(stdout); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://[^ ]+`).FindString(lines.Text())
	}
	redistest.CheckNow(t, address != "", "the program prints no address")

	const (
		mode = `document.body.dataset.mode === `
		bars = `[...document.querySelectorAll("#bars li")].map((b) => Number(b.textContent))`
		row  = `[...document.querySelector('#rows [data-mode="`
		cell = `"]').cells].map((c) => Number(c.textContent))`
	)
	b := open(t, address)
	b.until("protected, and two expiries", mode+`"on" && `+bars+`.length >= 2 && `+bars+`.every((n) => n === 1)`)
	b.until("it says so", `document.getElementById("name").textContent === "Protected."`)
	ask[bool](b, `(document.getElementById("protect").click(), true)`)
	b.until("a stampede", mode+`"off" && `+bars+`.some((n) => n > 3)`)
	b.until("it says so", `document.getElementById("name").textContent === "Unprotected."`)
	ask[bool](b, `(document.getElementById("protect").click(), true)`)
	b.until("calm again", mode+`"on" && `+bars+`.length >= 2 && `+bars+`.every((n) => n === 1)`)
	ask[bool](b, `(document.getElementById("stale").click(), true)`)
	b.until("stale values", mode+`"stale" && `+row+`stale`+cell+`[7] > 0`)
	ask[bool](b, `(document.getElementById("invalidate").click(), true)`)
	b.until("more expiries, with a load each", row+`stale`+cell+`[2] > 3 && `+row+`stale`+cell+`[3] === `+row+`stale`+cell+`[2]`)
	ask[bool](b, `(document.getElementById("near").click(), true)`)
	b.until("values from memory", mode+`"near" && `+row+`near`+cell+`[9] > 0`)
	b.until("nothing to complain of", `document.getElementById("alert").hidden`)
	b.noFaults()
}
