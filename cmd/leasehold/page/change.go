package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/changes"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// changed is what the two changes have in common: the rights that they need, the key,
// and how the outcome is told. A page of another site does not get here: see routes.
func (p *Page) changed(w http.ResponseWriter, r *http.Request, change func(ctx context.Context, of listing.Resource) error) {
	if !p.admitted(r) {
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	found, ok := p.hub.names.Load(r.PostFormValue("key"))
	if !ok {
		http.Error(w, "no such key is known", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	err := change(ctx, found.(listing.Resource))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, leasehold.ErrInvalid):
		http.Error(w, text.Safe(err.Error()), http.StatusBadRequest)
	case errors.Is(err, leasehold.ErrNoLease):
		http.Error(w, "there is no such lease any more", http.StatusNotFound)
	default:
		http.Error(w, "it may or may not have been done: "+text.Safe(err.Error()), http.StatusBadGateway)
	}
}

// limit sets the limit of a key, or the total of a family.
func (p *Page) limit(w http.ResponseWriter, r *http.Request) {
	p.changed(w, r, func(ctx context.Context, of listing.Resource) error {
		n, err := strconv.Atoi(r.PostFormValue("limit"))
		if err != nil {
			return fmt.Errorf("%w: the limit is no number", leasehold.ErrInvalid)
		}
		if of.Kind != keys.Semaphore || of.Whole {
			return fmt.Errorf("%w: only permits have a limit to set", leasehold.ErrInvalid)
		}
		return changes.Set(ctx, p.rdb, p.opt.Prefix, of, n)
	})
}

// revoke takes a lease or a waiter's place away. In the details of a family with a
// total the key is that of the lease.
func (p *Page) revoke(w http.ResponseWriter, r *http.Request) {
	p.changed(w, r, func(ctx context.Context, of listing.Resource) error {
		if of.Kind == keys.Guard || of.Whole {
			return fmt.Errorf("%w: there is nothing to revoke", leasehold.ErrInvalid)
		}
		id := r.PostFormValue("id")
		if of.HasTotal && of.Key == "" {
			var err error
			if of.Key, err = p.tenant(ctx, of, id); err != nil {
				return err
			}
		}
		return changes.Revoke(ctx, p.rdb, p.opt.Prefix, of, id, r.PostFormValue("reason"))
	})
}

// tenant is the key of a lease or a waiter of a family with a total.
func (p *Page) tenant(ctx context.Context, of listing.Resource, id string) (string, error) {
	s, err := p.hub.keys.List.State(ctx, of, listing.Bounds{})
	if err != nil && !errors.Is(err, listing.ErrTooMany) {
		return "", err
	}
	for _, h := range s.Holders {
		if h.ID == id {
			return h.Tenant, nil
		}
	}
	for _, w := range s.Waiters {
		if w.ID == id {
			return w.Tenant, nil
		}
	}
	return "", leasehold.ErrNoLease
}
