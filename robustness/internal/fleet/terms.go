// Package fleet is a number of processes that use every primitive at random and tell of all that they do, on
// a real server behind a network that can be made to fail; and the faults that strike them, each by a name.
//
// What they tell is a history for the package check. Everything random comes from
// one seed: the same seed gives the same choices, though not the same timing.
//
// A test's TestMain has to call redistest.Main, since the workers are its own binary, started again.
package fleet

import (
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

// How many keys of each kind there are.
const (
	semaphores = 3
	shared     = 3 // of a family with a total
	mutexes    = 3
	values     = 4
)

type spec struct {
	Worker   string // its name in the history
	Seed     uint64
	Addr     string // of the server, as this worker reaches it
	Store    string // of the server that keeps the guarded values, where no fault strikes
	Family   string
	Terms    history.Terms
	Operated bool // somebody inspects and revokes
}

func Keys() (keys []string) {
	for i, n := range []int{semaphores, shared, mutexes, values} {
		for k := range n {
			keys = append(keys, fmt.Sprint("stmc"[i:i+1], k))
		}
	}
	return keys
}

// valueTTL is short, so that values are loaded often.
const valueTTL = 150 * time.Millisecond
