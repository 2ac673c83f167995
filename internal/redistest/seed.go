package redistest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed is what a randomised test makes its choices from: LEASEHOLD_SEED where
// that is set, else a fresh one. It is logged, so that a failing run names it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := rand.Uint64() >> 1
	if text, ok := os.LookupEnv("LEASEHOLD_SEED"); ok {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("LEASEHOLD_SEED: %v", err)
		}
	}
	tb.Logf("LEASEHOLD_SEED=%d", seed)
	return seed
}

// Seeds runs fn as a parallel subtest for each of several seeds in a row: from
// LEASEHOLD_SEED just the one, unless LEASEHOLD_SEEDS says how many; else fresh
// ones, n of them where LEASEHOLD_SEEDS says nothing. After one has failed no
// more are begun.
func Seeds(all *testing.T, n int, fn func(t *testing.T, seed uint64)) {
	all.Helper()
	first := Seed(all)
	if _, one := os.LookupEnv("LEASEHOLD_SEED"); one {
		n = 1
	}
	if text, ok := os.LookupEnv("LEASEHOLD_SEEDS"); ok {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			all.Fatalf("LEASEHOLD_SEEDS: %v", err)
		}
	}
	for i := range n {
		seed := first + uint64(i)
		all.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			if all.Failed() {
				t.Skip("another seed has failed")
			}
			fn(t, seed)
		})
	}
}
