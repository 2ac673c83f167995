package redistest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// fixedSeed is the seed of a run for which LEASEHOLD_SEED names none. It is always the same, so that no change fails
// over a fault that another change made. Fresh seeds run beside the checks of a change: see make soak.
const fixedSeed = 1

func chosenSeed() (uint64, error) {
	switch text := os.Getenv("LEASEHOLD_SEED"); text {
	case "":
		return fixedSeed, nil
	case "fresh":
		return uint64(rand.Uint32()), nil // short, since people have to copy it
	default:
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("LEASEHOLD_SEED: %w; want a number or \"fresh\"", err)
		}
		return seed, nil
	}
}

// Seed returns the seed that a randomised test makes its choices from: the number in LEASEHOLD_SEED, a fresh
// one if that is "fresh", and else always the same. It is logged, so that a run that fails names it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed, err := chosenSeed()
	WantErr(tb, err)
	tb.Logf("LEASEHOLD_SEED=%d", seed)
	return seed
}

// RapidSeed returns the same for the flag -rapid.seed.
func RapidSeed() string {
	seed, err := chosenSeed()
	if err != nil {
		panic(err)
	}
	return strconv.FormatUint(max(1, seed), 10) // 0 means any one
}

// Seeds runs fn as a parallel subtest for each of several seeds in a row, n of them or as many as
// LEASEHOLD_SEEDS says. The first one is Seed's. If LEASEHOLD_SEED is a number and LEASEHOLD_SEEDS is not
// set, fn runs for that one alone. After one has failed no more are begun.
func Seeds(all *testing.T, n int, fn func(t *testing.T, seed uint64)) {
	all.Helper()
	first := Seed(all)
	if named := os.Getenv("LEASEHOLD_SEED"); named != "" && named != "fresh" {
		n = 1
	}
	if text, ok := os.LookupEnv("LEASEHOLD_SEEDS"); ok {
		n = Must(strconv.Atoi(text))(all)
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
