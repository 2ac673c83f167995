package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// kinds are the words for the kinds of resources.
var kinds = map[keys.Kind]string{keys.Mutex: "mutex", keys.Semaphore: "semaphore", keys.Flight: "cache", keys.Guard: "guard"}

func (a *app) ls() *cobra.Command {
	var asJSON, all bool
	var kind, family, order string
	var longer time.Duration
	c := &cobra.Command{
		Use:   "ls [TEXT]",
		Short: "List what is held, waited for and cached: one line per key",
		Long: `ls lists keys: how many permits are in use, how many wait and for how long, which
values are cached. TEXT keeps those whose family or key contains it.

HELD is for how long the oldest lease of the key has been held; with "!" one has been
renewed for more than ten times its TTL and may hang. To find such a lease, see
--sort held and --held-longer; leasehold show names its holder, leasehold revoke ends it.

Keys on which nothing happens are left out unless --all is given: of a lock the
last token is kept for a day.

It looks at all keys of the server, in calls of 1000 that each take well below a
millisecond, and changes nothing. In a Cluster it asks every primary.

With --json each line is an object: kind, family, key, inUse, limit, storedLimit,
waiting, longestWaitMs, expiresInMs, heldForMs, overlong, token, cachedBytes, freshForMs, keptForMs. A name
that is no UTF-8 is also given as family_base64 or key_base64.`,
		Example: `  leasehold ls
  leasehold ls --kind semaphore --sort waiting
  leasehold ls --held-longer 5m --sort held
  leasehold ls --json acme | jq 'select(.waiting > 10)'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkList(kind, order); err != nil {
				return usage(err)
			}
			rdb, err := a.dial(c.Context())
			if err != nil {
				return err
			}
			defer rdb.Close()
			l := listing.New(rdb, a.prefix)
			found, err := l.Resources(c.Context())
			if err != nil {
				return withCode(err)
			}
			uses, err := l.Uses(c.Context(), found)
			if err != nil {
				return withCode(err)
			}
			uses = slices.DeleteFunc(uses, func(u listing.Use) bool {
				return u.Idle() && !all || kind != "" && kinds[u.Kind] != kind || family != "" && u.Family != family || longer > 0 && u.HeldFor <= longer ||
					len(args) > 0 && !strings.Contains(u.Family+"/"+u.Key, args[0])
			})
			sortUses(uses, order)
			if asJSON {
				return a.linesJSON(uses)
			}
			a.lines(uses, len(found), kind+family != "" || longer > 0 || len(args) > 0)
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "one object per line")
	f.BoolVarP(&all, "all", "a", false, "also keys on which nothing happens")
	f.StringVar(&kind, "kind", "", "mutex, semaphore, cache or guard")
	f.StringVar(&family, "family", "", "one family")
	f.StringVar(&order, "sort", "name", "name, use, held, waiting or wait")
	f.DurationVar(&longer, "held-longer", 0, "only keys with a lease that has been held for longer, such as 5m")
	return c
}

func checkList(kind, order string) error {
	if kind != "" && !slices.Contains([]string{"mutex", "semaphore", "cache", "guard"}, kind) {
		return fmt.Errorf("ls: --kind is %q; want mutex, semaphore, cache or guard", kind)
	}
	if !slices.Contains([]string{"name", "use", "held", "waiting", "wait"}, order) {
		return fmt.Errorf("ls: --sort is %q; want name, use, held, waiting or wait", order)
	}
	return nil
}

func sortUses(uses []listing.Use, order string) {
	slices.SortStableFunc(uses, func(a, b listing.Use) int {
		switch order {
		case "use":
			return cmp.Compare(b.InUse, a.InUse)
		case "waiting":
			return cmp.Compare(b.Waiting, a.Waiting)
		case "held":
			return cmp.Compare(b.HeldFor, a.HeldFor)
		case "wait":
			return cmp.Compare(b.LongestWait, a.LongestWait)
		}
		return 0
	})
}

// note is what a line says beside the figures.
func note(u listing.Use) string {
	var all []string
	if u.Overlong {
		all = append(all, "held past 10 TTLs")
	}
	if u.Stored {
		all = append(all, "limit set by hand")
	}
	if v := u.Value; v != nil {
		switch {
		case !v.Known:
			all = append(all, "unknown value")
		case v.FreshFor > 0:
			all = append(all, text.Bytes(v.Bytes)+" fresh "+text.Duration(v.FreshFor))
		default:
			all = append(all, text.Bytes(v.Bytes)+" stale")
		}
	}
	if u.Schema != "" {
		all = append(all, "schema "+u.Schema)
	}
	if u.FailedFor > 0 {
		all = append(all, "failure "+text.Duration(u.FailedFor))
	}
	if u.Kind == keys.Guard && u.Token > 0 {
		all = append(all, "token "+strconv.FormatUint(u.Token, 10))
	}
	if u.Err != nil {
		all = append(all, text.Safe(u.Err.Error()))
	}
	return strings.Join(all, ", ")
}

func (a *app) lines(uses []listing.Use, found int, filtered bool) {
	if len(uses) == 0 && filtered && found > 0 {
		fmt.Fprintf(a.out, "None of %d keys is like that. Without --all, idle keys are left out.\n", found)
		return
	}
	if len(uses) == 0 {
		fmt.Fprintf(a.out, "Nothing is held, waited for or cached.")
		if found > 0 {
			fmt.Fprintf(a.out, " %d keys are known: see --all.", found)
		}
		fmt.Fprintln(a.out)
		return
	}
	rows := [][]string{{"KIND", "FAMILY", "KEY", "USE", "HELD", "WAITING", "LONGEST", "NOTE"}}
	for _, u := range uses {
		waiting, longest := "", ""
		if u.Waiting > 0 {
			waiting = strconv.Itoa(u.Waiting)
		}
		if u.LongestWait > 0 {
			longest = text.Duration(u.LongestWait)
		}
		rows = append(rows, []string{kinds[u.Kind], text.Safe(u.Family), text.Name(u.Resource), text.InUse(u), text.Held(u.HeldFor, u.Overlong), waiting, longest, note(u)})
	}
	fmt.Fprint(a.out, text.Table(rows, map[int]bool{3: true, 4: true, 5: true, 6: true}, 2, a.width()))
}

// width is the terminal's, 0 where there is none: then nothing is cut.
func (a *app) width() int {
	if f, ok := a.out.(interface{ Fd() uintptr }); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			return w
		}
	}
	return 0
}

// line is one object of ls --json.
type line struct {
	Kind        string `json:"kind"`
	Family      string `json:"family"`
	Key         string `json:"key"`
	FamilyBytes string `json:"family_base64,omitempty"` // of names that are no UTF-8
	KeyBytes    string `json:"key_base64,omitempty"`
	Schema      string `json:"schema,omitempty"` // of a cached value
	Scope       string `json:"scope,omitempty"`  // "total" or "loads": the line is of no one key
	InUse       int    `json:"inUse"`
	Limit       int    `json:"limit,omitempty"`
	StoredLimit bool   `json:"storedLimit,omitempty"`
	Waiting     int    `json:"waiting"`
	LongestWait int64  `json:"longestWaitMs,omitempty"`
	ExpiresIn   int64  `json:"expiresInMs,omitempty"`
	HeldFor     int64  `json:"heldForMs,omitempty"`
	Overlong    bool   `json:"overlong,omitempty"`
	Token       uint64 `json:"token,omitempty"`
	CachedBytes int    `json:"cachedBytes,omitempty"`
	FreshFor    int64  `json:"freshForMs,omitempty"`
	KeptFor     int64  `json:"keptForMs,omitempty"`
	FailedFor   int64  `json:"failedForMs,omitempty"`
	Error       string `json:"error,omitempty"`
}

func lineOf(u listing.Use) line {
	x := line{
		Kind: kinds[u.Kind], Family: u.Family, Key: u.Key, FamilyBytes: text.Base64(u.Family), KeyBytes: text.Base64(u.Key), Schema: u.Schema, InUse: u.InUse, Limit: u.Limit, StoredLimit: u.Stored,
		Waiting: u.Waiting, LongestWait: millis(u.LongestWait), ExpiresIn: millis(u.ExpiresIn), HeldFor: millis(u.HeldFor), Overlong: u.Overlong, Token: u.Token, FailedFor: millis(u.FailedFor),
	}
	switch {
	case u.Whole:
		x.Scope = "loads"
	case u.HasTotal && u.Key == "":
		x.Scope = "total"
	}
	if v := u.Value; v != nil {
		x.CachedBytes, x.FreshFor, x.KeptFor = v.Bytes, millis(max(0, v.FreshFor)), millis(v.KeptFor)
	}
	if u.Err != nil {
		x.Error = u.Err.Error()
	}
	return x
}

func millis(d time.Duration) int64 { return d.Milliseconds() }

func (a *app) linesJSON(uses []listing.Use) error {
	for _, u := range uses {
		if err := a.json(lineOf(u)); err != nil {
			return err
		}
	}
	return nil
}
