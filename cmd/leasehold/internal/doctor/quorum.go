package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// LookQuorum examines the servers of a quorum, each as Look does, and whether they are one. An error
// says that fewer than a majority can be asked.
func LookQuorum(ctx context.Context, rdbs []redis.UniversalClient, prefix string) (Report, error) {
	if prefix == "" {
		prefix = "leasehold"
	}
	v := &visit{prefix: prefix}
	const check = "quorum"
	if n := len(rdbs); n != 3 && n != 5 && n != 7 && n != 9 {
		v.find(Finding{check, Bad, fmt.Sprintf("there are %d servers", n), "No handle is made.", "Use 3, 5, 7 or 9 servers: an even number survives the loss of no more of them."})
	}
	var away error
	for i, rdb := range rdbs {
		one := &visit{rdb: rdb}
		if err := one.meet(ctx); err != nil {
			away = err
			v.find(Finding{check, Bad, fmt.Sprintf("%s does not answer: %v", nameOf(rdb, i), err), "One more may be lost before no majority is left, or none.", "Bring it back: it is recognised, and votes after one TTL."})
			continue
		}
		if len(one.nodes) != 1 {
			v.find(Finding{check, Bad, nameOf(rdb, i) + " is a Cluster", "No handle is made.", "Use independent servers."})
			continue
		}
		one.nodes[0].name = nameOf(rdb, i)
		v.nodes = append(v.nodes, one.nodes...)
	}
	if len(v.nodes) < len(rdbs)/2+1 && away != nil {
		return v.Report, away
	}
	v.independent(check)
	v.version()
	for _, n := range v.nodes {
		v.rdb = n.rdb
		v.named(n.name, func() { v.rights(ctx) })
	}
	v.eviction()
	v.persistence(ctx)
	for i := range v.Findings {
		if f := &v.Findings[i]; f.Check == "persistence" && f.Grade != Unknown && f.Grade != Good {
			f.Grade = Note
			f.Means = "After a restart it abstains for one TTL, and then hears the tokens of the others. If a majority restarts at once, nothing is granted for one TTL."
			f.Change = ""
		}
	}
	v.clocks(ctx)
	for _, n := range v.nodes {
		v.rdb = n.rdb
		v.named(n.name, func() { v.messages(ctx) })
	}
	holds, because := Good, "as long as no majority forgets at the same time, and no clock jumps"
	switch {
	case v.grade(check) == Bad, v.grade("version") == Bad, v.grade("rights") == Bad, v.grade("eviction") == Bad:
		holds, because = Bad, "see the problems above"
	case v.grade("rights") == Unknown, v.grade("eviction") == Unknown:
		holds, because = Unknown, "a server does not tell its settings"
	}
	v.Promises = []Promise{{"Never more than one holder, and tokens that rise", holds, because}}
	return v.Report, nil
}

func nameOf(rdb redis.UniversalClient, i int) string {
	if c, ok := rdb.(*redis.Client); ok {
		return c.Options().Addr
	}
	return fmt.Sprintf("server %d", i+1)
}

// named runs a check, and says of which server its findings are.
func (v *visit) named(name string, check func()) {
	before := len(v.Findings)
	check()
	for i := range v.Findings[before:] {
		f := &v.Findings[before+i]
		f.Says = name + ": " + f.Says
	}
}

// independent says whether the servers are different ones, and tell who they are.
func (v *visit) independent(check string) {
	seen := map[string]string{}
	for _, n := range v.nodes {
		run := n.info["run_id"]
		switch first := seen[run]; {
		case run == "":
			v.find(Finding{check, Bad, n.name + " does not tell its run id: INFO is refused", "A restart of it could not be recognised: it does not vote.", "Allow +info to the user."})
		case first != "":
			v.find(Finding{check, Bad, n.name + " and " + first + " are the same server", "It would have two votes: no handle is made.", "Use different servers, on different machines."})
		default:
			seen[run] = n.name
		}
	}
	if !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Check == check }) {
		v.find(Finding{check, Good, fmt.Sprintf("%d different servers answer", len(v.nodes)), fmt.Sprintf("%d of them may be lost at the same time.", (len(v.nodes)-1)/2), ""})
	}
}
