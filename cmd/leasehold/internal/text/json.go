package text

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/listing"
)

// JSON encodes v in one line that is harmless on a terminal: characters that would act on it,
// such as U+009B or U+202E, are escaped. They can only be within strings, whose meaning stays.
func JSON(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf && r != 0x7f || harmless(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String() + "\n", nil
}

// inBase64 is a name that JSON can't hold because it is no UTF-8, and "" of any other.
func inBase64(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(name))
}

// Named is what JSON says of a resource in a list and alone. Durations are in ms.
type Named struct {
	Kind        string `json:"kind"`
	Family      string `json:"family"`
	Key         string `json:"key"`
	FamilyBytes string `json:"family_base64,omitempty"` // of names that are no UTF-8
	KeyBytes    string `json:"key_base64,omitempty"`
	Schema      string `json:"schema,omitempty"`   // of a cached value
	Scope       string `json:"scope,omitempty"`    // "total" or "loads": it is no one key
	HasTotal    bool   `json:"hasTotal,omitempty"` // it is, or is of, a family with a total
	InUse       int    `json:"inUse"`
	Limit       int    `json:"limit,omitempty"`
	StoredLimit bool   `json:"storedLimit,omitempty"`
	Token       uint64 `json:"token,omitempty"`
	UsualHold   int64  `json:"usualHoldMs,omitempty"`
	FailedFor   int64  `json:"failedForMs,omitempty"`
	Error       string `json:"error,omitempty"`
}

func named(r listing.Resource, usual time.Duration) Named {
	x := Named{Kind: Kind(r.Kind), Family: r.Family, Key: r.Key, FamilyBytes: inBase64(r.Family), KeyBytes: inBase64(r.Key), Schema: r.Schema, UsualHold: ms(usual), HasTotal: r.HasTotal}
	switch {
	case r.Whole:
		x.Scope = "loads"
	case r.HasTotal && r.Key == "":
		x.Scope = "total"
	}
	return x
}

// Plain takes out of the names what would act on a terminal or a page.
func (x *Named) Plain() {
	for _, name := range []*string{&x.Family, &x.Key, &x.Error} {
		*name = Safe(*name)
	}
	x.FamilyBytes, x.KeyBytes = "", ""
}

// Line is one object of ls --json.
type Line struct {
	Named
	Waiting     int   `json:"waiting"`
	LongestWait int64 `json:"longestWaitMs,omitempty"`
	ExpiresIn   int64 `json:"expiresInMs,omitempty"`
	HeldFor     int64 `json:"heldForMs,omitempty"` // by the oldest lease
	Overlong    bool  `json:"overlong,omitempty"`  // a lease was renewed for more than ten times its TTL
	Keeps       bool  `json:"keeps,omitempty"`     // the process of a holder keeps leases: it may be idle
	CachedBytes int   `json:"cachedBytes,omitempty"`
	FreshFor    int64 `json:"freshForMs,omitempty"`
	KeptFor     int64 `json:"keptForMs,omitempty"`
}

// LineOf is the object of a line. usual is for how long its family's leases are usually held.
func LineOf(u listing.Use, usual time.Duration) Line {
	x := Line{
		Named: named(u.Resource, usual), Waiting: u.Waiting, LongestWait: ms(u.LongestWait),
		ExpiresIn: ms(u.ExpiresIn), HeldFor: ms(u.HeldFor), Overlong: u.Overlong, Keeps: u.Keeps,
	}
	x.InUse, x.Limit, x.StoredLimit, x.Token, x.FailedFor = u.InUse, u.Limit, u.Stored, u.Token, ms(u.FailedFor)
	if v := u.Value; v != nil {
		x.CachedBytes, x.FreshFor, x.KeptFor = v.Bytes, ms(max(0, v.FreshFor)), ms(v.KeptFor)
	}
	if u.Err != nil {
		x.Error = u.Err.Error()
	}
	return x
}

// Entry is a holder or a waiter.
type Entry struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant,omitempty"`
	Bytes      string    `json:"tenant_base64,omitempty"` // of one that is no UTF-8
	Label      string    `json:"label,omitempty"`
	Permits    int       `json:"permits"`
	Since      time.Time `json:"since,omitzero"`
	HeldFor    int64     `json:"heldForMs,omitempty"`
	ExpiresIn  int64     `json:"expiresInMs,omitempty"`
	Overlong   bool      `json:"overlong,omitempty"` // renewed for more than ten times its TTL
	Keeps      bool      `json:"keeps,omitempty"`    // its process keeps leases: it may be idle
	Position   int       `json:"position,omitempty"`
	WaitingFor int64     `json:"waitingForMs,omitempty"`
	Aside      bool      `json:"invalidated,omitempty"`
}

// State is show --json.
type State struct {
	Named
	Configured int     `json:"configuredLimit,omitempty"` // that of the last request's process
	Total      int     `json:"total,omitempty"`
	Holders    []Entry `json:"holders"`
	Waiters    []Entry `json:"waiters"`
	Cached     *Cached `json:"cached,omitempty"`
	Near       int     `json:"near,omitempty"` // handles that may serve a copy of a cached value from memory
}

// Cached is a cached value.
type Cached struct {
	Bytes     int       `json:"bytes"`
	Published time.Time `json:"published,omitzero"`
	FreshFor  int64     `json:"freshForMs"`
	KeptFor   int64     `json:"keptForMs"`
	NotFound  bool      `json:"notFound,omitempty"`
}

// StateOf is the object of a state, with up to most holders and as many waiters.
func StateOf(s listing.State, usual time.Duration, most int) State {
	x := State{
		Named: named(s.Resource, usual), Configured: Configured(s), Total: s.Total,
		Holders: []Entry{}, Waiters: []Entry{}, Near: s.Near,
	}
	x.InUse, x.Limit, x.StoredLimit, x.Token, x.FailedFor = s.InUse, s.Limit, s.Stored, s.Token, ms(s.FailedFor)
	for _, h := range s.Holders[:min(len(s.Holders), most)] {
		x.Holders = append(x.Holders, Entry{
			ID: h.ID, Tenant: h.Tenant, Bytes: inBase64(h.Tenant), Label: h.Label, Permits: h.Permits, Since: h.Since.UTC(),
			HeldFor: ms(s.At.Sub(h.Since)), ExpiresIn: ms(h.ExpiresIn), Overlong: h.Overlong(s.At), Keeps: h.Keeps, Aside: h.Aside,
		})
	}
	for _, w := range s.Waiters[:min(len(s.Waiters), most)] {
		x.Waiters = append(x.Waiters, Entry{
			ID: w.ID, Tenant: w.Tenant, Bytes: inBase64(w.Tenant), Label: w.Label, Permits: w.Permits, Position: w.Position, WaitingFor: ms(w.WaitingFor),
		})
	}
	if v := s.Value; v != nil {
		x.Cached = &Cached{Bytes: v.Bytes, Published: v.Published.UTC(), FreshFor: ms(v.FreshFor), KeptFor: ms(v.KeptFor), NotFound: v.NotFound}
	}
	return x
}

func ms(d time.Duration) int64 { return d.Milliseconds() }
