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

var kinds = map[string]keys.Kind{"mutex": keys.Mutex, "semaphore": keys.Semaphore, "cache": keys.Flight, "guard": keys.Guard}

func kindWord(k keys.Kind) string {
	for word, kind := range kinds {
		if kind == k {
			return word
		}
	}
	return string(k)
}

func parseView(q url.Values) (view, error) {
	v := view{search: q.Get("q"), family: q.Get("family"), order: q.Get("sort"), idle: q.Get("idle") == "1", rows: fewRows, chosen: q.Get("key")}
	if word := q.Get("kind"); word != "" {
		if v.kind = kinds[word]; v.kind == "" {
			return v, fmt.Errorf("kind is not one of mutex, semaphore, cache, guard")
		}
	}
	if len(v.search)+len(v.family)+len(v.chosen) > 4096 {
		return v, fmt.Errorf("the search is too long")
	}
	switch v.order {
	case "", "wait", "waiting", "use", "held", "name":
	default:
		return v, fmt.Errorf("sort is not one of wait, waiting, use, held, name")
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

// has says whether the view shows a row.
func (v view) has(u listing.Use) bool {
	switch {
	case v.kind != "" && u.Kind != v.kind, v.family != "" && u.Family != v.family && text.Safe(u.Family) != v.family:
		return false
	case !v.idle && u.Idle():
		return false
	case v.search == "":
		return true
	}
	found := strings.ToLower(text.Safe(u.Family) + "/" + text.Safe(u.Key))
	for _, word := range strings.Fields(strings.ToLower(v.search)) {
		if !strings.Contains(found, word) {
			return false
		}
	}
	return true
}

// sorted puts what needs attention first, unless the user wants it otherwise.
func (v view) sorted(uses []listing.Use) {
	slices.SortStableFunc(uses, func(a, b listing.Use) int {
		byName := listing.Compare(a.Resource, b.Resource)
		wait, waiting, use := cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse)
		switch v.order {
		case "name":
			return byName
		case "use":
			return cmp.Or(use, waiting, byName)
		case "held":
			return cmp.Or(cmp.Compare(b.HeldFor, a.HeldFor), byName)
		case "waiting":
			return cmp.Or(waiting, wait, byName)
		case "wait":
			return cmp.Or(wait, byName)
		}
		// The longest wait changes all the time: a row would not stay where it is.
		return cmp.Or(listing.CompareHanging(a, b), waiting, use, byName)
	})
}
