package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	ttl = 400 * time.Millisecond
	demotest.Main(m, main)
}

func TestHeadless(t *testing.T) {
	demotest.Slow(t)
	demotest.Check(t, "-headless")
}

// An error does not quote the URL, which may hold a password.
func TestNoServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	text, problems, err := demotest.Run(t, "-headless")
	if err == nil || !strings.Contains(problems, "no answer from the Redis of REDIS_URL") || strings.Contains(text+problems, "secret") {
		t.Errorf("%v: %s%s", err, text, problems)
	}
}
