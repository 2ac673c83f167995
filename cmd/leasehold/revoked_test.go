package main

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// A program whose lease is revoked is told long before a renewal would tell it, by
// SIGTERM and the grace or by SIGKILL, and its tool says so.
func TestRevokedProgramIsStopped(t *testing.T) {
	addr, rdb := server(t)
	url, name := "redis://"+addr, redistest.Name(t)
	locks, err := mutex.New(rdb, mutex.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	for about, c := range map[string]struct {
		flags  []string
		script string
		line   string // that the program prints when it is told
	}{
		"it ends by itself":       {nil, `trap "echo told; exit 0" TERM; echo on; while :; do sleep 0.02; done`, "told"},
		"it goes on":              {[]string{"--grace", "300ms"}, `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`, "told"},
		"it is not asked":         {[]string{"--lost", "kill"}, `trap "echo told" TERM; echo on; while :; do sleep 0.02; done`, ""},
		"it is stopped meanwhile": {[]string{"--lost", "kill"}, `echo on; kill -STOP $$; echo told`, ""},
	} {
		args := append([]string{"run", "--mutex", name, "--key", about, "--ttl", "5m"}, c.flags...)
		x := start(t, url, append(args, "--", "sh", "-c", c.script)...)
		x.line()
		state, err := locks.Inspect(t.Context(), about)
		if err != nil || !state.Held {
			t.Fatalf("%s: %+v, %v", about, state, err)
		}
		at := time.Now()
		revoking := start(t, url, "revoke", "--mutex", name, "--key", about, "--reason", "a test", state.Holder.ID)
		if code := revoking.code(); code != 0 {
			t.Fatalf("%s: revoke ends with %d: %s", about, code, revoking.stderr.String())
		}
		// The lock is free at once; the program may go on for the grace.
		next, err := locks.TryLock(t.Context(), about)
		if err != nil {
			t.Fatalf("%s: the next holder: %v", about, err)
		}
		if got := x.line(); got != c.line {
			t.Errorf("%s: it prints %q, want %q", about, got, c.line)
		}
		if got := x.code(); got != 124 {
			t.Errorf("%s: exit code %d, want 124", about, got)
		}
		if took := time.Since(at); took > time.Minute { // a renewal comes after 100 s
			t.Errorf("%s: it ended after %v", about, took)
		}
		t.Logf("%s: %v", about, time.Since(at))
		redistest.WantErr(t, next.Unlock())
	}
}
