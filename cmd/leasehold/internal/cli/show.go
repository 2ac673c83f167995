package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// target says which key a command is about.
type target struct {
	mutex, semaphore, cache, guard string
	key                            string
	hashed                         bool
}

func (x *target) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&x.mutex, "mutex", "", "family of locks")
	f.StringVar(&x.semaphore, "semaphore", "", "family of permits")
	f.StringVar(&x.cache, "cache", "", "family of cached values")
	f.StringVar(&x.guard, "guard", "", "family of guarded values")
	f.StringVar(&x.key, "key", "", "the key; of a family with a total, none is the family")
	f.BoolVar(&x.hashed, "hashed", false, "the family has HashKeys: --key is hashed as it does")
	c.MarkFlagsOneRequired("mutex", "semaphore", "cache", "guard")
	c.MarkFlagsMutuallyExclusive("mutex", "semaphore", "cache", "guard")
}

// resources are what it may mean: a semaphore's key may be a tenant of a family
// with a total.
func (x *target) resources(prefix string) ([]listing.Resource, error) {
	kind, family := keys.Mutex, x.mutex
	switch {
	case x.semaphore != "":
		kind, family = keys.Semaphore, x.semaphore
	case x.cache != "":
		kind, family = keys.Flight, x.cache
	case x.guard != "":
		kind, family = keys.Guard, x.guard
	}
	if x.key == "" && kind != keys.Semaphore && kind != keys.Flight {
		return nil, errors.New("no key: want --key")
	}
	of := func(total bool) listing.Resource {
		return listing.Of(prefix, kind, family, keys.Shown(x.key, x.hashed), total)
	}
	switch {
	case kind != keys.Semaphore:
	case x.key == "": // only a family with a total is shown as one
		return []listing.Resource{of(true)}, nil
	default:
		return []listing.Resource{of(true), of(false)}, nil
	}
	return []listing.Resource{of(false)}, nil
}

func (a *app) show() *cobra.Command {
	var x target
	var asJSON bool
	c := &cobra.Command{
		Use:                   "show (--mutex | --semaphore | --cache | --guard) NAME --key KEY",
		DisableFlagsInUseLine: true,
		Short:                 "Show who holds and who waits for one key",
		Long: `show lists the holders of a key, oldest first, with where they run, since when they
hold it and when their lease ends if they don't renew it; then those who wait, in
their order. Of a cached value it says how large, how old and how fresh it is.

A family of permits with a total has other keys in Redis than one of the same name
without a total. Where something is held or waited for in both, both are shown.

HELD FOR with "!" means that the lease has been renewed for more than ten times its TTL:
its holder may hang.

A permit is held at least since the time that is shown; a lock and a load exactly
since then. Ids name leases to operators.`,
		Example: `  leasehold show --mutex jobs --key nightly
  leasehold show --semaphore exports --key acme --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := x.resources(a.prefix)
			if err != nil {
				return usagef("show: %w", err)
			}
			rdb, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer rdb.Close()
			states, err := found(c.Context(), listing.New(rdb, a.prefix), all)
			if err != nil {
				return withCode(err)
			}
			for _, s := range states {
				if !asJSON {
					a.state(s, len(states) > 1)
				} else if err := a.json(stateOf(s)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	x.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "one object; of a cached value one for each version, of permits one with a total and one without")
	return c
}

// found is the states of those of the resources where something is held, waited for or
// kept. Where nothing is, it is those that have stored limits, and else the last one. Of a
// cached value it is that of each version in use.
func found(ctx context.Context, l *listing.Lister, of []listing.Resource) (states []listing.State, err error) {
	if r := of[0]; r.Kind == keys.Flight && r.Key != "" {
		others, err := l.Schemas(ctx, r)
		if err != nil {
			return nil, err
		}
		of = append(of, others...)
	}
	var limited []listing.State
	for i, r := range of {
		s, err := l.State(ctx, r, listing.Bounds{})
		switch {
		case err != nil && !errors.Is(err, listing.ErrTooMany):
			return nil, err
		case s.InUse+len(s.Waiters) > 0 || s.Value != nil || s.FailedFor > 0:
			states = append(states, s)
		case s.Stored || len(s.Limits) > 0, i == len(of)-1 && len(limited) == 0:
			limited = append(limited, s)
		}
	}
	if len(states) == 0 {
		return limited, nil
	}
	return states, nil
}

// entry is a holder or a waiter of show --json.
type entry struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant,omitempty"`
	Bytes      string    `json:"tenant_base64,omitempty"` // of one that is no UTF-8
	Label      string    `json:"label,omitempty"`
	Permits    int       `json:"permits"`
	Since      time.Time `json:"since,omitzero"`
	ExpiresIn  int64     `json:"expiresInMs,omitempty"`
	Overlong   bool      `json:"overlong,omitempty"` // renewed for more than ten times its TTL
	Position   int       `json:"position,omitempty"`
	WaitingFor int64     `json:"waitingForMs,omitempty"`
	Aside      bool      `json:"invalidated,omitempty"`
}

// shown is show --json.
type shown struct {
	Kind        string  `json:"kind"`
	Family      string  `json:"family"`
	Key         string  `json:"key"`
	FamilyBytes string  `json:"family_base64,omitempty"` // of names that are no UTF-8
	KeyBytes    string  `json:"key_base64,omitempty"`
	Schema      string  `json:"schema,omitempty"` // of a cached value
	InUse       int     `json:"inUse"`
	Limit       int     `json:"limit,omitempty"`
	StoredLimit bool    `json:"storedLimit,omitempty"`
	Configured  int     `json:"configuredLimit,omitempty"` // that of the last request's process
	HasTotal    bool    `json:"hasTotal,omitempty"`        // it is, or is of, a family with a total
	Total       int     `json:"total,omitempty"`
	Token       uint64  `json:"token,omitempty"`
	Holders     []entry `json:"holders"`
	Waiters     []entry `json:"waiters"`
	Cached      *cached `json:"cached,omitempty"`
	FailedFor   int64   `json:"failedForMs,omitempty"`
	Near        int     `json:"near,omitempty"` // handles that may serve a copy of a cached value from memory
}

type cached struct {
	Bytes     int       `json:"bytes"`
	Published time.Time `json:"published,omitzero"`
	FreshFor  int64     `json:"freshForMs"`
	KeptFor   int64     `json:"keptForMs"`
	NotFound  bool      `json:"notFound,omitempty"`
}

func stateOf(s listing.State) shown {
	x := shown{
		Kind: kinds[s.Kind], Family: s.Family, Key: s.Key, FamilyBytes: text.Base64(s.Family), KeyBytes: text.Base64(s.Key), Schema: s.Schema, InUse: s.InUse, Limit: s.Limit, StoredLimit: s.Stored, Configured: configured(s),
		HasTotal: s.HasTotal, Total: s.Total, Token: s.Token, Holders: []entry{}, Waiters: []entry{}, FailedFor: millis(s.FailedFor), Near: s.Near,
	}
	for _, h := range s.Holders {
		x.Holders = append(x.Holders, entry{ID: h.ID, Tenant: h.Tenant, Bytes: text.Base64(h.Tenant), Label: h.Label, Permits: h.Permits, Since: h.Since.UTC(), ExpiresIn: millis(h.ExpiresIn), Overlong: h.Overlong(s.At), Aside: h.Aside})
	}
	for _, w := range s.Waiters {
		x.Waiters = append(x.Waiters, entry{ID: w.ID, Tenant: w.Tenant, Bytes: text.Base64(w.Tenant), Label: w.Label, Permits: w.Permits, Position: w.Position, WaitingFor: millis(w.WaitingFor)})
	}
	if v := s.Value; v != nil {
		x.Cached = &cached{Bytes: v.Bytes, Published: v.Published.UTC(), FreshFor: millis(v.FreshFor), KeptFor: millis(v.KeptFor), NotFound: v.NotFound}
	}
	return x
}

// summary is one sentence on a resource.
func summary(s listing.State) string {
	if s.Kind == keys.Guard {
		if s.Token == 0 {
			return "nothing was written"
		}
		return "no token below " + strconv.FormatUint(s.Token, 10) + " is accepted"
	}
	limit, out := s.Limit, ""
	if s.HasTotal && s.Key == "" {
		limit = s.Total
	}
	if limit > 0 {
		out = fmt.Sprintf("%d of %d in use", s.InUse, limit)
	} else {
		out = fmt.Sprintf("%d in use", s.InUse)
	}
	if s.Stored {
		out += " (" + byHand(s) + ")"
	}
	if n := len(s.Waiters); n > 0 {
		out += fmt.Sprintf(", %d waiting", n)
	}
	if s.Token > 0 {
		out += ", last token " + strconv.FormatUint(s.Token, 10)
	}
	return out
}

// configured is the limit, or the total, that the processes have in their Configs; 0 = not known.
func configured(s listing.State) int {
	if s.HasTotal && s.Key == "" {
		return s.ConfiguredTotal
	}
	return s.Configured
}

// byHand says of a stored limit how it came about.
func byHand(s listing.State) string {
	what := "limit"
	if s.HasTotal && s.Key == "" {
		what = "total"
	}
	if n := configured(s); n > 0 {
		return fmt.Sprintf("%s set by hand; configured %d", what, n)
	}
	return what + " set by hand; configured: not known while nothing is held or waited for"
}

// state writes a state. Where it is oneOfSome it says which: which version of a cached
// value, or whether of a family with a total.
func (a *app) state(s listing.State, oneOfSome bool) {
	of := title(s.Resource)
	switch {
	case !oneOfSome:
	case s.Kind == keys.Flight:
		of += " (schema " + cmp.Or(s.Schema, "0") + ")"
	case s.HasTotal:
		of += " (with a total)"
	default:
		of += " (without a total)"
	}
	fmt.Fprintf(a.out, "%s %s: %s\n", kinds[s.Kind], of, summary(s))
	if v := s.Value; v != nil {
		fmt.Fprintln(a.out, valueLine(v))
	}
	if s.Near > 0 {
		fmt.Fprintf(a.out, "Handles that may serve a copy from memory: %d.\n", s.Near)
	}
	if s.FailedFor > 0 {
		fmt.Fprintf(a.out, "A failure is remembered for %s yet.\n", text.Duration(s.FailedFor))
	}
	tenants := s.HasTotal && s.Key == ""
	if len(s.Holders) > 0 {
		rows := [][]string{{"HOLDER", "TENANT", "PERMITS", "LABEL", "HELD FOR", "EXPIRES IN"}}
		for _, h := range s.Holders {
			label := text.Safe(h.Label)
			if h.Aside {
				label = strings.TrimSpace(label + " (invalidated)")
			}
			rows = append(rows, []string{text.Safe(h.ID), text.Safe(h.Tenant), strconv.Itoa(h.Permits), label, text.Held(s.At.Sub(h.Since), h.Overlong(s.At)), text.Duration(h.ExpiresIn)})
		}
		a.entries(rows, tenants)
	}
	if len(s.Waiters) > 0 {
		rows := [][]string{{"WAITER", "TENANT", "PERMITS", "LABEL", "POSITION", "WAITING"}}
		for _, w := range s.Waiters {
			rows = append(rows, []string{text.Safe(w.ID), text.Safe(w.Tenant), strconv.Itoa(w.Permits), text.Safe(w.Label), strconv.Itoa(w.Position), text.Duration(w.WaitingFor)})
		}
		a.entries(rows, tenants)
	}
}

// entries writes a table, without the column of tenants where there is one tenant,
// and without that of labels where nobody has one.
func (a *app) entries(rows [][]string, tenants bool) {
	labels := false
	for _, row := range rows[1:] {
		labels = labels || row[3] != ""
	}
	drop := func(i int) {
		for j, row := range rows {
			rows[j] = append(row[:i:i], row[i+1:]...)
		}
	}
	if !labels {
		drop(3)
	}
	if !tenants {
		drop(1)
	}
	right := map[int]bool{}
	for i, head := range rows[0] {
		right[i] = head != "HOLDER" && head != "WAITER" && head != "LABEL" && head != "TENANT"
	}
	fmt.Fprint(a.out, "\n"+text.Table(rows, right, 1, a.width()))
}

func title(r listing.Resource) string {
	return text.Safe(r.Family) + "/" + text.Name(r)
}

func valueLine(v *listing.Value) string {
	what := "A value"
	if v.NotFound {
		what = `"Not found"`
	}
	if !v.Known {
		return fmt.Sprintf("%d bytes of another form are kept for %s.", v.Bytes, text.Duration(v.KeptFor))
	}
	fresh := "is stale since " + text.Duration(-v.FreshFor)
	if v.FreshFor > 0 {
		fresh = "is fresh for " + text.Duration(v.FreshFor)
	}
	return fmt.Sprintf("%s of %s %s, and is kept for %s.", what, text.Bytes(v.Bytes), fresh, text.Duration(v.KeptFor))
}
