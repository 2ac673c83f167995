package page

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/listing"
)

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

type row struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Family  string `json:"family"`
	Key     string `json:"key"`
	Schema  string `json:"schema,omitempty"` // of a cached value
	Scope   string `json:"scope,omitempty"`
	InUse   int    `json:"inUse"`
	Limit   int    `json:"limit"`
	Stored  bool   `json:"stored,omitempty"`
	Waiting int    `json:"waiting"`
	Longest int64  `json:"longest"`
	Held    int64  `json:"held,omitempty"`  // by the oldest lease
	Hangs   bool   `json:"hangs,omitempty"` // a lease was renewed for more than ten times its TTL
	Expires int64  `json:"expires"`
	Token   uint64 `json:"token,omitempty,string"`
	Bytes   int    `json:"bytes,omitempty"`
	Fresh   int64  `json:"fresh,omitempty"`
	Kept    int64  `json:"kept,omitempty"`
	Failed  int64  `json:"failed,omitempty"`
	Error   string `json:"error,omitempty"`
}

type detail struct {
	row
	Total    int      `json:"total,omitempty"`
	NotFound bool     `json:"notFound,omitempty"`
	Near     int      `json:"near,omitempty"` // handles that may serve a copy from memory
	Holders  []entry  `json:"holders"`
	Waiters  []entry  `json:"waiters"`
	More     [2]int   `json:"more"` // holders and waiters beyond those
	Past     [2][]int `json:"past"`
}

type entry struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant,omitempty"`
	Label   string `json:"label,omitempty"`
	Permits int    `json:"permits"`
	For     int64  `json:"for"`               // held, or waited for
	Expires int64  `json:"expires,omitempty"` // of a holder
	Aside   bool   `json:"aside,omitempty"`   // an invalidated load
	Hangs   bool   `json:"hangs,omitempty"`   // as in a row
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

func rowOf(u listing.Use) row {
	x := row{
		ID: id(u.Resource), Kind: kindWord(u.Kind), Family: text.Safe(u.Family), Key: text.Safe(u.Key), Schema: u.Schema,
		InUse: u.InUse, Limit: u.Limit, Stored: u.Stored, Waiting: u.Waiting, Longest: ms(u.LongestWait), Held: ms(u.HeldFor), Hangs: u.Overlong, Expires: ms(u.ExpiresIn),
		Token: u.Token, Failed: ms(u.FailedFor),
	}
	switch {
	case u.Whole:
		x.Scope = "loads"
	case u.HasTotal && u.Key == "":
		x.Scope = "total"
	}
	if u.Value != nil {
		x.Bytes, x.Fresh, x.Kept = u.Value.Bytes, ms(max(0, u.Value.FreshFor)), ms(u.Value.KeptFor)
	}
	if u.Err != nil {
		x.Error = text.Safe(u.Err.Error())
	}
	return x
}

// rows are those of a view, in its order.
func (h *hub) rows(v view) []listing.Use {
	found := h.found(v)
	return found[:min(len(found), v.rows)]
}

func (h *hub) found(v view) []listing.Use {
	var found []listing.Use
	for _, name := range h.order {
		if u := h.known[name]; v.has(u) {
			found = append(found, u)
		}
	}
	v.sorted(found)
	return found
}

func (h *hub) state(v view, d *detail) state {
	found := h.found(v)
	s := state{
		Keys: len(h.known), Matching: len(found), ScanAge: ms(time.Since(h.scanned)), ScanTook: ms(h.took),
		Families: h.families(), Rows: []row{}, Detail: d, Changes: h.changes, Gone: v.chosen != "" && d == nil,
	}
	if h.err != nil {
		s.Error = text.Safe(h.err.Error())
	}
	for _, u := range found[:min(len(found), v.rows)] {
		s.Rows = append(s.Rows, rowOf(u))
	}
	return s
}

// families adds up what is known of each family; those with queues come first.
func (h *hub) families() []family {
	at := map[string]*family{}
	for _, name := range h.order {
		u := h.known[name]
		key := familyID(u.Resource)
		f := at[key]
		if f == nil {
			f = &family{Kind: kindWord(u.Kind), Name: text.Safe(u.Family), Past: h.past[key].series()}
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
		f.Longest = max(f.Longest, ms(u.LongestWait))
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
	u, ok := h.known[name]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d := &detail{row: rowOf(u), Holders: []entry{}, Waiters: []entry{}, Past: h.past[name].series()}
	s, err := h.list.State(ctx, u.Resource, listing.Bounds{Entries: 5000})
	if err != nil && !errors.Is(err, listing.ErrTooMany) {
		d.Error = text.Safe(err.Error())
		return d
	}
	d.Total, d.InUse, d.Waiting, d.Token = s.Total, s.InUse, len(s.Waiters), s.Token
	if s.Value != nil {
		d.NotFound, d.Near = s.Value.NotFound, s.Near
	}
	for _, x := range s.Holders[:min(len(s.Holders), detailsMost)] {
		d.Holders = append(d.Holders, entry{
			ID: text.Safe(x.ID), Tenant: text.Safe(x.Tenant), Label: text.Safe(x.Label), Permits: x.Permits,
			For: ms(s.At.Sub(x.Since)), Expires: ms(x.ExpiresIn), Aside: x.Aside, Hangs: x.Overlong(s.At),
		})
	}
	for _, x := range s.Waiters[:min(len(s.Waiters), detailsMost)] {
		d.Waiters = append(d.Waiters, entry{ID: text.Safe(x.ID), Tenant: text.Safe(x.Tenant), Label: text.Safe(x.Label), Permits: x.Permits, For: ms(x.WaitingFor)})
	}
	d.More = [2]int{len(s.Holders) - len(d.Holders), len(s.Waiters) - len(d.Waiters)}
	return d
}
