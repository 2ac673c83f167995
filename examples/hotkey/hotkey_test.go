package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	ttl = 400 * time.Millisecond
	demotest.Main(m, program)
}

func TestHeadless(t *testing.T) { demotest.Check(t, program) }

// An error does not quote the URL, which may hold a password.
func TestNoServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1/0?max_retries=-1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := program.Show(ctx, io.Discard); err == nil || ctx.Err() != nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}
