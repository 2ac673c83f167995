package page

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// view is what one browser shows: which rows, in which order, and the details of
// one key. Browsers with the same view share all that is done for it.
type view struct {
	search string
	kind   keys.Kind // "" = all
	family string    // "" = all
	order  string
	idle   bool // also keys on which nothing happens
	rows   int
	chosen string // the id of the key whose details are shown
}

const (
	fewRows  = 50
	mostRows = 500
)

func parseView(q url.Values) (view, error) {
	v := view{search: q.Get("q"), family: q.Get("family"), order: q.Get("sort"), idle: q.Get("idle") == "1", rows: fewRows, chosen: q.Get("key")}
	if word := q.Get("kind"); word != "" {
		if v.kind = text.Kinds[word]; v.kind == "" {
			return v, fmt.Errorf("kind is not one of mutex, semaphore, cache, guard")
		}
	}
	if len(v.search)+len(v.family)+len(v.chosen) > 4096 {
		return v, fmt.Errorf("the search is too long")
	}
	if v.order = cmp.Or(v.order, "attention"); !slices.Contains(listing.Orders, v.order) {
		return v, fmt.Errorf("sort is not one of %s", strings.Join(listing.Orders, ", "))
	}
	if n, err := strconv.Atoi(q.Get("rows")); err == nil {
		v.rows = min(max(n, 1), mostRows)
	}
	return v, nil
}

// id names a resource in the page: names may hold bytes that no text can.
func id(r listing.Resource) string {
	sum := sha256.Sum256([]byte(r.Part("") + "\x00" + r.Key))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (v view) has(u listing.Use) bool {
	switch {
	case v.kind != "" && u.Kind != v.kind, v.family != "" && u.Family != v.family && text.Safe(u.Family) != v.family:
		return false
	case !v.idle && u.Idle():
		return false
	}
	return text.Matches(u.Resource, v.search)
}
