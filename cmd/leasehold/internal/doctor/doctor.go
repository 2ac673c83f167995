// Package doctor looks at a server as leasehold needs it: version, rights, what it
// keeps on disk, what it evicts, replicas, clocks and messages. Each finding says
// in plain words what it means for the leases, and what to change.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Grade says how good a finding is.
type Grade string

// The grades.
const (
	Good    Grade = "ok"
	Note    Grade = "note"    // worth knowing
	Bad     Grade = "problem" // a promise does not hold
	Unknown Grade = "unknown" // it could not be found out
)

// Finding is one thing that was looked at.
type Finding struct {
	Check string `json:"check"`
	Grade Grade  `json:"grade"`
	// Says is what was found, Means what it means for the leases, Change what to do about it.
	Says   string `json:"says"`
	Means  string `json:"means,omitempty"`
	Change string `json:"change,omitempty"`
}

// Promise is one of leasehold's promises, and whether it holds on this server.
type Promise struct {
	Promise string `json:"promise"`
	Grade   Grade  `json:"grade"`
	Because string `json:"because,omitempty"`
}

// Report is all that was found.
type Report struct {
	Findings []Finding `json:"findings"`
	Promises []Promise `json:"promises"`
}

// HasProblem reports whether a finding is a problem.
func (r Report) HasProblem() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Grade == Bad })
}

// visit is one look at all of a deployment.
type visit struct {
	rdb    redis.UniversalClient
	prefix string
	nodes  []node
	Report
}

// node is one primary, with what it says of itself.
type node struct {
	name string
	rdb  redis.UniversalClient
	info map[string]string // nil where INFO is refused
	err  error
}

// Look examines the deployment behind a client. It writes nothing but a message
// on a channel of its own. An error says that Redis can't be asked at all.
func Look(ctx context.Context, rdb redis.UniversalClient, prefix string) (Report, error) {
	v := &visit{rdb: rdb, prefix: cmp.Or(prefix, keys.DefaultPrefix)}
	if err := v.meet(ctx); err != nil {
		return v.Report, err
	}
	v.version()
	v.rights(ctx)
	v.eviction()
	v.persistence(ctx)
	v.replicas()
	v.clocks(ctx)
	v.messages(ctx)
	v.promises()
	return v.Report, nil
}

// meet finds the primaries and reads what they say of themselves.
func (v *visit) meet(ctx context.Context) error {
	// A server that refuses the user says so of each command: nothing can be found out.
	if _, err := v.rdb.Time(ctx).Result(); err != nil && (!refused(err) || redis.IsAuthError(err)) {
		return err
	}
	if c, ok := v.rdb.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		err := c.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			v.nodes = append(v.nodes, node{name: n.Options().Addr, rdb: n})
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(v.nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	} else {
		v.nodes = []node{{name: "the server", rdb: v.rdb}}
	}
	for i := range v.nodes {
		n := &v.nodes[i]
		var text string
		if text, n.err = n.rdb.Info(ctx).Result(); n.err == nil {
			n.info = parse(text)
		} else if !refused(n.err) && ctx.Err() != nil {
			return n.err
		}
	}
	return nil
}

func parse(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// each runs a check on each primary that tells of itself; what is of one that does not.
func (v *visit) each(check, what string, look func(n node)) {
	for _, n := range v.nodes {
		switch says := n.name + " does not tell " + what + ": "; {
		case n.info != nil:
			look(n)
		case n.err != nil && !strings.HasPrefix(n.err.Error(), "NOPERM"):
			v.find(Finding{check, Unknown, says + n.err.Error(), "", ""})
		default:
			v.find(Finding{check, Unknown, says + "INFO is refused", "", "Allow +info to the user who runs doctor."})
		}
	}
}

// refused says that the server answered, and that its answer is no.
func refused(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}

func (v *visit) find(f Finding) { v.Findings = append(v.Findings, f) }

func (v *visit) grade(check string) Grade {
	grades, worst := []Grade{Good, Note, Unknown, Bad}, 0
	for _, f := range v.Findings {
		if f.Check == check {
			worst = max(worst, slices.Index(grades, f.Grade))
		}
	}
	return grades[worst]
}

func (v *visit) version() {
	const check = "version"
	v.each(check, "its version", func(n node) {
		flavour, version, least := "Redis", n.info["redis_version"], 7
		if valkey := n.info["valkey_version"]; valkey != "" {
			flavour, version, least = "Valkey", valkey, 8
		}
		major, err := strconv.Atoi(strings.Split(version, ".")[0])
		switch says := n.name + " is " + flavour + " " + version; {
		case err != nil:
			v.find(Finding{check, Unknown, n.name + " tells no version", "", ""})
		case major < least:
			v.find(Finding{check, Bad, says, "The scripts need commands that it does not have: nothing works.", "Use Redis 7.0 or later, or Valkey 8 or later."})
		default:
			v.find(Finding{check, Good, says, "", ""})
		}
	})
}

func (v *visit) eviction() {
	const check = "eviction"
	v.each(check, "its eviction policy", func(n node) {
		policy, most := n.info["maxmemory_policy"], n.info["maxmemory"]
		switch says := fmt.Sprintf("%s has maxmemory-policy %s, maxmemory %s", n.name, policy, human(most)); {
		case policy == "":
			v.find(Finding{check, Unknown, n.name + " does not tell its eviction policy", "", ""})
		case policy == "noeviction":
			v.find(Finding{check, Good, says, "Where memory runs out, new requests fail with ErrUnavailable; what is held can still be given back.", ""})
		case most == "0":
			v.find(Finding{check, Note, says, "Nothing is evicted as long as maxmemory is 0.", "Set maxmemory-policy noeviction before somebody sets maxmemory."})
		default:
			means := "Any key may be evicted when memory runs out: a lease that is evicted ends early, and two may hold it for a moment; limits that were set at run time are lost."
			if strings.HasPrefix(policy, "volatile-") {
				means = "All leases expire, so that any of them may be evicted when memory runs out: it then ends early, and two may hold it for a moment."
			}
			v.find(Finding{check, Bad, says, means, "Set maxmemory-policy noeviction, or use a server of its own for leases."})
		}
	})
}

func human(bytes string) string {
	n, err := strconv.ParseInt(bytes, 10, 64)
	switch {
	case err != nil:
		return "unknown"
	case n == 0:
		return "0 (no bound)"
	case n < 1<<20:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n>>20, 10) + " MiB"
}

func (v *visit) persistence(ctx context.Context) {
	const check = "persistence"
	v.each(check, "what it keeps on disk", func(n node) {
		const toChange = "Set appendonly yes, or let what is protected check the token."
		save, known := setting(ctx, n, "save")
		sync, _ := setting(ctx, n, "appendfsync")
		switch {
		case n.info["aof_enabled"] == "1" && sync == "always":
			v.find(Finding{check, Good, n.name + " appends each write to a file and syncs it (appendfsync always)", "A restart forgets nothing.", ""})
		case n.info["aof_enabled"] == "1":
			says := n.name + " appends writes to a file (appendonly yes" + strings.TrimSuffix(", appendfsync "+sync, ", appendfsync ") + ")"
			v.find(Finding{check, Note, says, "After a crash of the machine the last second may be missing: a lease that was granted in it is granted again, " +
				"and its holder is told by its next renewal. Tokens rise all the same.", ""})
		case known && save != "":
			v.find(Finding{check, Note, n.name + " saves snapshots (save " + save + "), and appends nothing", "A restart forgets what was granted since the last snapshot: " +
				"another may be granted what a holder still has, until that holder's next renewal. Tokens rise all the same.", toChange})
		case known:
			v.find(Finding{check, Bad, n.name + " keeps nothing on disk", "A restart forgets all leases, queues and limits: " +
				"others are granted what holders still have, until those holders' next renewals. Tokens rise all the same, by the clock.", toChange})
		default:
			says := n.name + " appends nothing to a file, and does not tell whether it saves snapshots"
			v.find(Finding{check, Unknown, says, "", "Allow +config|get to the user who runs doctor."})
		}
		for _, name := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
			if status := n.info[name]; status != "" && status != "ok" {
				v.find(Finding{"disk", Bad, n.name + " says " + name + ": " + status, "It may refuse writes: nothing is granted then.", "See the server's log: often its disk is full."})
			}
		}
	})
}

// setting reads one setting; not known where CONFIG is refused.
func setting(ctx context.Context, n node, name string) (value string, known bool) {
	all, err := n.rdb.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", false
	}
	value, known = all[name]
	return value, known
}

const timeBound = 2 * time.Second
