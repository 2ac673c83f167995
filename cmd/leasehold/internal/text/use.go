package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// Kinds are the kinds of resources by their words.
var Kinds = map[string]keys.Kind{"mutex": keys.Mutex, "semaphore": keys.Semaphore, "cache": keys.Flight, "guard": keys.Guard}

// Kind is the word for a kind. A lock that several servers decide is a mutex, too, with a note.
func Kind(k keys.Kind) string {
	for word, kind := range Kinds {
		if kind == k {
			return word
		}
	}
	return "mutex"
}

// Name is how a key is shown: of a resource without one, what it is.
func Name(r listing.Resource) string {
	switch {
	case r.Whole:
		return "(loads)"
	case r.HasTotal && r.Key == "":
		return "(total)"
	}
	return Safe(r.Key)
}

func Title(r listing.Resource) string { return Safe(r.Family) + "/" + Name(r) }

// Matches reports whether kind, family and key contain all words of a search.
func Matches(r listing.Resource, search string) bool {
	name := strings.ToLower(Kind(r.Kind) + " " + Safe(r.Family) + "/" + Safe(r.Key))
	words := strings.Fields(strings.ToLower(search))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(name, word) })
}

// Heads are those of the columns of a listing, and Sides where each is aligned.
var (
	Heads = []string{"KIND", "FAMILY", "KEY", "USE", "HELD", "USUAL", "WAITING", "LONGEST", "NOTE"}
	Sides = "lllrrrrrl"
)

// Row are the cells of a listing's line. usual is for how long the family's leases are usually held.
func Row(u listing.Use, usual time.Duration) []string {
	row := []string{Kind(u.Kind), Safe(u.Family), Name(u.Resource), inUse(u), held(u.HeldFor, u.Overlong), "", "", "", Note(u)}
	if u.HeldFor > 0 && usual > 0 {
		row[5] = Duration(usual)
	}
	if u.Waiting > 0 {
		row[6] = strconv.Itoa(u.Waiting)
	}
	if u.LongestWait > 0 {
		row[7] = Duration(u.LongestWait)
	}
	return row
}

// inUse is "3/5", or what there is instead of permits.
func inUse(u listing.Use) string {
	switch {
	case u.Err != nil:
		return "?"
	case u.Kind == keys.Guard, u.Kind == keys.Flight && !u.Whole && u.InUse == 0:
		return "-"
	case u.Kind == keys.Flight && !u.Whole:
		return "loading"
	case u.Limit > 0:
		return strconv.Itoa(u.InUse) + "/" + strconv.Itoa(u.Limit)
	}
	return strconv.Itoa(u.InUse)
}

func held(d time.Duration, overlong bool) string {
	switch {
	case d <= 0:
		return ""
	case overlong:
		return Duration(d) + " !"
	}
	return Duration(d)
}

func Note(u listing.Use) string {
	var all []string
	if u.Kind == keys.Quorum {
		all = append(all, "of a quorum")
	}
	if u.Overlong {
		all = append(all, "held past 10 TTLs")
	}
	if u.Keeps {
		all = append(all, "may be idle")
	}
	if u.Stored {
		all = append(all, "limit set by hand")
	}
	if v := u.Value; v != nil {
		switch {
		case !v.Known:
			all = append(all, "unknown value")
		case v.FreshFor > 0:
			all = append(all, Bytes(v.Bytes)+" fresh "+Duration(v.FreshFor))
		default:
			all = append(all, Bytes(v.Bytes)+" stale")
		}
	}
	if u.Schema != "" {
		all = append(all, "schema "+u.Schema)
	}
	if u.FailedFor > 0 {
		all = append(all, "failure "+Duration(u.FailedFor))
	}
	if u.Kind == keys.Guard && u.Token > 0 {
		all = append(all, "token "+strconv.FormatUint(u.Token, 10))
	}
	if u.Err != nil {
		all = append(all, Safe(u.Err.Error()))
	}
	return strings.Join(all, ", ")
}

// Summary is one sentence on a resource.
func Summary(s listing.State, usual time.Duration) string {
	if s.Kind == keys.Guard {
		if s.Token == 0 {
			return "nothing was written"
		}
		return "no token below " + strconv.FormatUint(s.Token, 10) + " is accepted"
	}
	limit, out := s.Limit, strconv.Itoa(s.InUse)
	if s.HasTotal && s.Key == "" {
		limit = s.Total
	}
	if limit > 0 {
		out += " of " + strconv.Itoa(limit)
	}
	out += " in use"
	if s.Stored {
		out += " (" + byHand(s) + ")"
	}
	if n := len(s.Waiters); n > 0 {
		out += fmt.Sprintf(", %d waiting", n)
	}
	if usual > 0 && s.InUse > 0 {
		out += ", usually held for " + Duration(usual) + " at most"
	}
	if s.Token > 0 {
		out += ", last token " + strconv.FormatUint(s.Token, 10)
	}
	return out
}

// Configured is the limit, or the total, that the processes have in their Configs; 0 = not known.
func Configured(s listing.State) int {
	if s.HasTotal && s.Key == "" {
		return s.ConfiguredTotal
	}
	return s.Configured
}

func byHand(s listing.State) string {
	what := "limit"
	if s.HasTotal && s.Key == "" {
		what = "total"
	}
	if n := Configured(s); n > 0 {
		return fmt.Sprintf("%s set by hand; configured %d", what, n)
	}
	return what + " set by hand; configured: not known while nothing is held or waited for"
}

func Value(v *listing.Value) string {
	what := "A value"
	if v.NotFound {
		what = `"Not found"`
	}
	if !v.Known {
		return fmt.Sprintf("%d bytes of another form are kept for %s.", v.Bytes, Duration(v.KeptFor))
	}
	fresh := "is stale since " + Duration(-v.FreshFor)
	if v.FreshFor > 0 {
		fresh = "is fresh for " + Duration(v.FreshFor)
	}
	return fmt.Sprintf("%s of %s %s, and is kept for %s.", what, Bytes(v.Bytes), fresh, Duration(v.KeptFor))
}

// Entries are the tables of the holders and of the waiters that there are, in lines of the width, where
// it is not 0. Only of a family with a total they name tenants.
func Entries(s listing.State, width int) (out string) {
	holders := [][]string{{"HOLDER", "TENANT", "PERMITS", "LABEL", "HELD FOR", "EXPIRES IN"}}
	for _, h := range s.Holders {
		label := Safe(h.Label)
		if h.Aside {
			label = strings.TrimSpace(label + " (invalidated)")
		}
		if h.Keeps {
			label = strings.TrimSpace(label + " (may be idle)")
		}
		holders = append(holders, []string{Safe(h.ID), tenant(s, h.Tenant), strconv.Itoa(h.Permits), label, held(s.At.Sub(h.Since), h.Overlong(s.At)), Duration(h.ExpiresIn)})
	}
	waiters := [][]string{{"WAITER", "TENANT", "PERMITS", "LABEL", "POSITION", "WAITING"}}
	for _, w := range s.Waiters {
		waiters = append(waiters, []string{Safe(w.ID), tenant(s, w.Tenant), strconv.Itoa(w.Permits), Safe(w.Label), strconv.Itoa(w.Position), Duration(w.WaitingFor)})
	}
	for _, rows := range [][][]string{holders, waiters} {
		if len(rows) > 1 {
			out += "\n" + Table(rows, "llrlrr", 3, width) // the label is cut
		}
	}
	return out
}

func tenant(s listing.State, name string) string {
	if s.HasTotal && s.Key == "" {
		return Safe(name)
	}
	return ""
}
