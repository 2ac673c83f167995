package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// replica is what a primary says of one of its replicas.
type replica struct {
	addr   string
	online bool
	behind int64         // bytes
	silent time.Duration // since its last word
}

// replicas reads the lines slave0:ip=…,port=…,state=…,offset=…,lag=… of INFO.
func (n node) replicas() (all []replica) {
	end, _ := strconv.ParseInt(n.info["master_repl_offset"], 10, 64)
	for i := 0; ; i++ {
		line, ok := n.info["slave"+strconv.Itoa(i)]
		if !ok {
			return all
		}
		fields := map[string]string{}
		for _, field := range strings.Split(line, ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		offset, _ := strconv.ParseInt(fields["offset"], 10, 64)
		lag, _ := strconv.Atoi(fields["lag"])
		all = append(all, replica{
			addr: net.JoinHostPort(fields["ip"], fields["port"]), online: fields["state"] == "online",
			behind: max(0, end-offset), silent: time.Duration(lag) * time.Second,
		})
	}
}

func (v *visit) replicas() {
	const check = "replicas"
	v.each(check, "its replicas", func(n node) {
		if role := n.info["role"]; role != "master" && role != "" {
			v.find(Finding{check, Bad, n.name + " is a replica itself", "It refuses writes: nothing is granted.", "Connect to the primary, or by redis+sentinel:// or redis+cluster://."})
			return
		}
		all := n.replicas()
		if len(all) == 0 {
			v.find(Finding{check, Note, n.name + " has no replica", "Nothing can be lost in a failover, since there is none: while the server is away nothing is granted, and leases end by themselves.", ""})
			return
		}
		for _, r := range all {
			switch {
			case !r.online:
				v.find(Finding{check, Note, fmt.Sprintf("the replica %s of %s does not follow yet", r.addr, n.name), "A failover to it would lose what it has not got.", ""})
			case r.silent > 10*time.Second || r.behind > 10<<20:
				v.find(Finding{
					check, Bad, fmt.Sprintf("the replica %s of %s is %d bytes behind, and was last heard %d s ago", r.addr, n.name, r.behind, int(r.silent.Seconds())),
					"A failover to it would lose many grants: others are granted what holders still have.", "Find out why it does not keep up.",
				})
			default:
				v.find(Finding{
					check, Note, fmt.Sprintf("the replica %s of %s is %d bytes behind", r.addr, n.name, r.behind),
					"A failover may lose the last grants: another may then hold what a holder still has, until that holder's next renewal. The token tells them apart.",
					"Where that must not be, let what is protected check the token.",
				})
			}
		}
	})
}

func (v *visit) clocks(ctx context.Context) {
	const check = "clock"
	type reading struct {
		name  string
		ahead time.Duration // of this machine's clock
	}
	var all []reading
	for _, n := range v.nodes {
		by, trip, err := ahead(ctx, n.rdb)
		if err != nil {
			v.find(Finding{check, Unknown, n.name + " does not tell its time: " + err.Error(), "", "Allow +time."})
			continue
		}
		all = append(all, reading{n.name, by})
		f := Finding{Check: check, Grade: Good, Says: fmt.Sprintf("%s answers in %s; its clock and this machine's differ by %s", n.name, text.Duration(trip), text.Duration(by.Abs()))}
		if by.Abs() > 2*time.Second {
			way := "behind"
			if by > 0 {
				way = "ahead of"
			}
			f.Grade = Note
			f.Says = fmt.Sprintf("%s answers in %s; its clock is %s %s this machine's", n.name, text.Duration(trip), text.Duration(by.Abs().Round(time.Second)), way)
			f.Means = "Leases go by the server's clock alone, so that nothing is wrong now. But one of the two clocks is: when somebody sets the server's back, leases last that much longer, and forward, they end at once."
			f.Change = "Have both machines follow NTP, and let it slew clocks rather than step them."
		}
		v.find(f)
		for _, r := range n.replicas() {
			rdb, ok := n.dial(r.addr)
			if !ok {
				continue
			}
			bounded, cancel := context.WithTimeout(ctx, timeBound)
			by, _, err := ahead(bounded, rdb)
			cancel()
			_ = rdb.Close()
			if err == nil {
				all = append(all, reading{"the replica " + r.addr, by})
			}
		}
	}
	for _, r := range all {
		if apart := (r.ahead - all[0].ahead).Abs(); apart > time.Second {
			v.find(Finding{
				check, Bad, fmt.Sprintf("the clocks of %s and %s are %s apart", all[0].name, r.name, text.Duration(apart)),
				"After a failover from one to the other leases end that much too early or too late.",
				"Have all servers follow NTP.",
			})
		}
	}
}

// ahead asks some times and keeps the quickest answer, which is the most exact.
func ahead(ctx context.Context, rdb redis.UniversalClient) (ahead, trip time.Duration, err error) {
	for i := range 5 {
		began := time.Now()
		now, err := rdb.Time(ctx).Result()
		took := time.Since(began)
		if err != nil {
			return 0, 0, err
		}
		if i == 0 || took < trip {
			ahead, trip = now.Sub(began.Add(took/2)), took
		}
	}
	return ahead, trip, nil
}

// dial reaches a replica as its primary is reached, where that can be told.
func (n node) dial(addr string) (*redis.Client, bool) {
	c, ok := n.rdb.(*redis.Client)
	if !ok || c.Options().Network == "unix" || c.Options().TLSConfig != nil { // its TLS port is not told
		return nil, false
	}
	o := *c.Options()
	o.Network, o.Addr, o.Dialer, o.DialTimeout, o.MaxRetries = "tcp", addr, nil, time.Second, -1
	return redis.NewClient(&o), true
}

// LookQuorum examines the servers of a quorum, each as Look does, and whether they are one. An error
// says that fewer than a majority can be asked.
func LookQuorum(ctx context.Context, rdbs []redis.UniversalClient, prefix string) (Report, error) {
	v := &visit{prefix: cmp.Or(prefix, keys.DefaultPrefix)}
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
		if n.info["role"] == "slave" {
			v.find(Finding{check, Bad, n.name + " is a replica", "It refuses writes: it does not vote.", "Use its primary."})
		}
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
