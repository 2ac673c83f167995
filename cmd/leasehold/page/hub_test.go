package page

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A key is also known while the page notes which keys came or went. A browser that sets its limit in
// that moment must not be told that there is no such key.
func TestKeyStaysKnown(t *testing.T) {
	h := newHub(nil, Options{})
	for i := range 50 {
		h.keys.Known = append(h.keys.Known, listing.Use{Resource: listing.Of("", keys.Semaphore, "exports", fmt.Sprint(i), false)})
	}
	h.note()
	over, kept, gone := make(chan struct{}), id(h.keys.Known[40].Resource), id(h.keys.Known[49].Resource)
	go func() {
		defer close(over)
		for range 40 {
			h.note()
		}
		h.keys.Known = h.keys.Known[:49]
		h.note()
	}()
	for {
		_, known := h.names.Load(kept)
		redistest.CheckNow(t, known, "the key is not known")
		select {
		case <-over:
			_, known = h.names.Load(gone)
			redistest.Check(t, !known, "a key that went is known")
			return
		default:
		}
	}
}

// A browser tells families apart by kind and name: of two that are alike it would add a card with each state.
func TestLockOfAQuorumIsInTheFamilyOfItsName(t *testing.T) {
	h := newHub(nil, Options{})
	for _, kind := range []keys.Kind{keys.Mutex, keys.Quorum} {
		h.keys.Known = append(h.keys.Known, listing.Use{Resource: listing.Of("", kind, "jobs", "nightly", false), InUse: 1})
	}
	h.remember()
	all := h.families()
	redistest.Require(t, len(all), 1, "%d families")
	redistest.Check(t, all[0].Keys == 2 && all[0].InUse == 2 && all[0].Past[0][0] == 2, "the family: %+v", all[0])
}
