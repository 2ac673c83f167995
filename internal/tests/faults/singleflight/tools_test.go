package singleflight_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// faultSlack is what a busy machine may add to a bound.
const faultSlack = 2 * time.Second

// faultSeed is a source of random choices that a failing run names, and that
// LEASEHOLD_SEED repeats.
func faultSeed(tb testing.TB) (uint64, *rand.Rand) {
	tb.Helper()
	seed := rand.Uint64()
	if text, ok := os.LookupEnv("LEASEHOLD_SEED"); ok {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("LEASEHOLD_SEED: %v", err)
		}
	}
	tb.Logf("LEASEHOLD_SEED=%d", seed)
	return seed, rand.New(rand.NewPCG(seed, seed))
}

// faultSoak is how long a test runs that gets better with time: LEASEHOLD_SOAK,
// where that is set.
func faultSoak(tb testing.TB, short time.Duration) time.Duration {
	text, ok := os.LookupEnv("LEASEHOLD_SOAK")
	if !ok {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		tb.Fatalf("LEASEHOLD_SOAK: %v", err)
	}
	return d
}

// faultRounds is how often a test repeats itself: LEASEHOLD_ROUNDS, where that is
// set.
func faultRounds(tb testing.TB, short int) int {
	text, ok := os.LookupEnv("LEASEHOLD_ROUNDS")
	if !ok {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("LEASEHOLD_ROUNDS: %v", err)
	}
	return n
}

// faultNewest runs fn on the newest server alone, for tests that take long.
func faultNewest(t *testing.T, fn func(t *testing.T, target redistest.Target)) {
	t.Helper()
	v := redistest.Newest(t)
	target := redistest.Target{Name: v.Name, Kind: redistest.KindSingle, Version: v, Server: redistest.Shared(t, v)}
	t.Run(v.Name, func(t *testing.T) { fn(t, target) })
}
