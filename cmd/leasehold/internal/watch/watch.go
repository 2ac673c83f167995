// Package watch keeps what is known of all keys up to date, for what shows them.
package watch

import (
	"context"
	"time"

	"github.com/leasehold-go/leasehold/internal/listing"
)

// pollAll is up to how many keys are polled, whatever is shown.
const pollAll = 500

// Keys are all keys that were found.
type Keys struct {
	List    *listing.Lister
	Known   []listing.Use
	Scanned time.Time // when all were looked for
	Took    time.Duration
}

// Usual says for how long a family's leases are held.
func (k *Keys) Usual() func(listing.Resource) time.Duration {
	return listing.Usual(k.Known)
}

// Read looks for all keys, or at those that are shown. It changes nothing before take is called.
func (k *Keys) Read(ctx context.Context, scan bool, shown []listing.Resource) (take func(), err error) {
	began := time.Now()
	if scan {
		shown, err = k.List.Resources(ctx)
	} else if len(k.Known) <= pollAll {
		shown = nil
		for _, u := range k.Known {
			shown = append(shown, u.Resource)
		}
	}
	if err != nil {
		return nil, err
	}
	uses, err := k.List.Uses(ctx, shown)
	took := time.Since(began)
	return func() {
		if scan {
			k.Known, k.Scanned, k.Took = uses, time.Now(), took
			return
		}
		at := make(map[listing.Resource]int, len(k.Known))
		for i, u := range k.Known {
			at[u.Resource] = i
		}
		for _, u := range uses { // among them tenants that are new
			if i, ok := at[u.Resource]; ok {
				k.Known[i] = u
			} else {
				at[u.Resource], k.Known = len(k.Known), append(k.Known, u)
			}
		}
	}, err
}
