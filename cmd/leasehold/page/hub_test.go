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
