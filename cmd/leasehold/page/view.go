package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// view is what one browser shows: which rows, in which order, and the details of
// one key. Browsers with the same view share all that is done for it.
type view struct {
	search string
	kind   string // its word; "" = all
	family string // "" = all
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
	v := view{search: q.Get("q"), kind: q.Get("kind"), family: q.Get("family"), order: q.Get("sort"), idle: q.Get("idle") == "1", rows: fewRows, chosen: q.Get("key")}
	if v.kind != "" && text.Kinds[v.kind] == "" {
		return v, fmt.Errorf("kind is not one of mutex, semaphore, cache, guard")
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
	case v.kind != "" && text.Kind(u.Kind) != v.kind, v.family != "" && u.Family != v.family && text.Safe(u.Family) != v.family:
		return false
	case !v.idle && u.Idle():
		return false
	}
	return text.Matches(u.Resource, v.search)
}

// state is what a browser gets. All durations are in ms.
type state struct {
	Keys     int      `json:"keys"`
	Matching int      `json:"matching"`
	ScanAge  int64    `json:"scanAge"`
	ScanTook int64    `json:"scanTook"`
	Error    string   `json:"error,omitempty"`
	Families []family `json:"families"`
	Rows     []row    `json:"rows"`
	Detail   *detail  `json:"detail,omitempty"`
	Gone     bool     `json:"gone,omitempty"`    // the chosen key is not known
	Changes  bool     `json:"changes,omitempty"` // limits may be set, and leases revoked
}

type family struct {
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Keys    int      `json:"keys"`
	InUse   int      `json:"inUse"`
	Limit   int      `json:"limit"` // of all keys together that are in use
	Total   int      `json:"total,omitempty"`
	Waiting int      `json:"waiting"`
	Longest int64    `json:"longest"`
	Cached  int      `json:"cached"`
	Bytes   int      `json:"bytes"`
	Loads   int      `json:"loads,omitempty"` // of a family with MaxLoads: permits of loads in use
	Max     int      `json:"maxLoads,omitempty"`
	Past    [2][]int `json:"past"`
}

// row is a line of the list. Its names do nothing on a page or a terminal.
type row struct {
	ID string `json:"id"`
	text.Line
}

type detail struct {
	ID string `json:"id"`
	text.State
	Waiting int      `json:"waiting"`
	More    [2]int   `json:"more"` // holders and waiters beyond those
	Past    [2][]int `json:"past"`
}

func (h *hub) found(v view) []listing.Use {
	var found []listing.Use
	for _, u := range h.keys.Known {
		if v.has(u) {
			found = append(found, u)
		}
	}
	listing.SortUses(found, v.order)
	return found
}

func (h *hub) state(v view, d *detail) state {
	found := h.found(v)
	s := state{
		Keys: len(h.keys.Known), Matching: len(found), ScanAge: time.Since(h.keys.Scanned).Milliseconds(), ScanTook: h.keys.Took.Milliseconds(),
		Families: h.families(), Rows: []row{}, Detail: d, Changes: h.changes, Gone: v.chosen != "" && d == nil,
	}
	if h.err != nil {
		s.Error = text.Safe(h.err.Error())
	}
	for _, u := range found[:min(len(found), v.rows)] {
		x := row{id(u.Resource), text.LineOf(u, h.usual(u.Resource))}
		x.Plain()
		s.Rows = append(s.Rows, x)
	}
	return s
}

// families adds up what is known of each family.
func (h *hub) families() []family {
	at := map[listing.Resource]*family{}
	for _, u := range h.keys.Known {
		key := familyOf(u.Resource)
		f := at[key]
		if f == nil {
			f = &family{Kind: text.Kind(u.Kind), Name: text.Safe(u.Family), Past: h.past[key].series()}
			at[key] = f
		}
		switch {
		case u.Whole:
			f.Loads, f.Max = u.InUse, u.Limit
			continue
		case u.HasTotal && u.Key == "":
			f.Total = u.Limit
			continue
		}
		f.Keys++
		f.InUse += u.InUse
		if u.InUse > 0 {
			f.Limit += u.Limit
		}
		f.Waiting += u.Waiting
		f.Longest = max(f.Longest, u.LongestWait.Milliseconds())
		if u.Value != nil {
			f.Cached++
			f.Bytes += u.Value.Bytes
		}
	}
	all := make([]family, 0, len(at))
	for _, f := range at {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b family) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostRows)]
}

// detail reads the entries of one key.
func (h *hub) detail(ctx context.Context, name string) *detail {
	found, ok := h.names.Load(name)
	if !ok {
		return nil
	}
	r := found.(listing.Resource)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := h.keys.List.State(ctx, r, listing.Bounds{Entries: 5000})
	if err != nil && !errors.Is(err, listing.ErrTooMany) {
		s = listing.State{Resource: r}
	} else {
		err = nil
	}
	d := &detail{ID: name, State: text.StateOf(s, h.usual(r), detailsMost), Waiting: len(s.Waiters), Past: h.past[r].series()}
	d.More = [2]int{len(s.Holders) - len(d.Holders), len(s.Waiters) - len(d.Waiters)}
	if d.Scope == "total" {
		d.Limit = d.Total
	}
	if err != nil {
		d.Error = err.Error()
	}
	d.Plain()
	for _, all := range [][]text.Entry{d.Holders, d.Waiters} {
		for i, x := range all {
			all[i].ID, all[i].Tenant, all[i].Label, all[i].Bytes = text.Safe(x.ID), text.Safe(x.Tenant), text.Safe(x.Label), ""
		}
	}
	return d
}
