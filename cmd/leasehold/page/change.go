package page

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/limits"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// limit sets the limit of a key, or the total of a family. A page of another site
// does not get here: see routes.
func (p *Page) limit(w http.ResponseWriter, r *http.Request) {
	if !p.admitted(r) {
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4096)
	n, err := strconv.Atoi(r.PostFormValue("limit"))
	if err != nil {
		http.Error(w, "the limit is no number", http.StatusBadRequest)
		return
	}
	found, ok := p.hub.names.Load(r.PostFormValue("key"))
	if !ok {
		http.Error(w, "no such key is known", http.StatusNotFound)
		return
	}
	of := found.(listing.Resource)
	if of.Kind != keys.Semaphore || of.Whole {
		http.Error(w, "only permits have a limit to set", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	// A key of a family with hashed keys is known by its hash, which is what Redis
	// has: it is not hashed again.
	err = limits.Set(ctx, p.rdb, p.opt.Prefix, limits.Change{
		Family: of.Family, Key: of.Key, Total: of.HasTotal && of.Key == "", HasTotal: of.HasTotal, Limit: n,
	})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, leasehold.ErrInvalid):
		http.Error(w, text.Safe(err.Error()), http.StatusBadRequest)
	default:
		http.Error(w, "it may or may not have been set: "+text.Safe(err.Error()), http.StatusBadGateway)
	}
}
