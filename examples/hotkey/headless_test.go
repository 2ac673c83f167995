package main

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// short is a run of some seconds.
func short(args ...string) []string {
	return append([]string{
		"-headless", "-phase", "3s", "-ttl", "800ms", "-load", "100ms", "-stale", "400ms", "-clients", "15",
	}, args...)
}

func TestHeadless(t *testing.T) {
	t.Setenv("REDIS_URL", "") // embedded
	var out strings.Builder
	if code := parentMain(short(), &out); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	t.Log("\n" + out.String())
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("%d columns; want at most 80: %s", n, line)
		}
	}
	for _, want := range []string{
		`protection off +\d+ +\d+ +\d+ +[1-9]\d*\.\d `,
		`protection on +\d+ +(\d+) +(\d+) +1\.0 +1 `,
		`on, serving stale +\d+ +(\d+) +(\d+) +1\.0 +1 `,
		`exactly one load in each expiry`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("the output has no %s", want)
		}
	}
}

// hollow is a session in this process, whose server processes answer as though
// they were protected, but are not.
func hollow(t *testing.T, set settings) *session {
	t.Helper()
	t.Setenv("REDIS_URL", "")
	srv, err := demo.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	rdb, err := demo.Client(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	s := &session{set: set, srv: srv, rec: newRecord(set.ttl, set.processes)}
	if s.origin, err = startOrigin(set.load, s.rec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.origin.close)
	s.fleet = newFleet(t.Context(), s.rec)
	for num := range set.processes {
		service := &service{
			job:    job{Process: num + 1, Origin: s.origin.url},
			caches: map[mode]cache{on: plain{rdb, "hollow", set.ttl}},
		}
		child := httptest.NewServer(service.handler())
		t.Cleanup(child.Close)
		s.fleet.kids = append(s.fleet.kids, &kid{addr: strings.TrimPrefix(child.URL, "http://")})
	}
	s.crowd = newCrowd(s.rec, set.clients, s.fleet.addrs())
	return s
}

func TestTheVerdictSeesThatProtectionIsMissing(t *testing.T) {
	s := hollow(t, settings{
		processes: 2, clients: 10, ttl: 400 * time.Millisecond, load: 100 * time.Millisecond, phase: time.Second,
	})
	r, err := s.phase(on)
	if err != nil {
		t.Fatal(err)
	}
	problems := verdict([]result{r})
	for _, want := range []string{"loads in", "began while another ran", "ran at once"} {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}

func TestADeadProcessEndsTheRun(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	set, err := parse(short("-processes", "2", "-clients", "2", "-phase", "1m"), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	answered := func() bool { // then the phase is under way
		s.rec.mu.Lock()
		defer s.rec.mu.Unlock()
		return s.rec.current != nil && s.rec.current.seen > 0
	}
	go func() {
		for !answered() && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = s.fleet.kids[1].cmd.Process.Kill()
	}()
	if _, err := s.phase(on); err == nil || !strings.Contains(err.Error(), "process 2 ended by itself") {
		t.Errorf("the phase ended with %v", err)
	}
}

// Whatever becomes of the parent, its end closes their stdin.
func TestProcessesEndWithTheirParent(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	set, err := parse(short("-processes", "1"), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSession(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.fleet.kids[0].stdin.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.fleet.kids[0].done:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range []string{"-processes=0", "-clients=-1", "-ttl=1ms", "-load=1h", "-phase=0s", "-stale=0s", "more", "-nonsense"} {
		var said strings.Builder
		if _, err := parse([]string{bad}, &said); err == nil || said.Len() == 0 {
			t.Errorf("%s: error %v, said %q", bad, err, said.String())
		}
	}
	s, err := parse(nil, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if total := time.Duration(len(modes)) * s.phase; total > 13*time.Second {
		t.Errorf("the phases take %v; a headless run should take at most 15 s", total)
	}
}

// A caller that can't have a server gets to know, and soon.
func TestNoServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1/0")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	set, err := parse(short(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = headless(ctx, set, &strings.Builder{})
	if err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// The page has to work where there is no network.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	files, err := filepath.Glob("web/*")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, never fetched
		if found := regexp.MustCompile(`(https?:)?//[a-z]+\.[^\s"']*`).FindString(rest); found != "" {
			t.Errorf("%s names %s", name, found)
		}
	}
}
