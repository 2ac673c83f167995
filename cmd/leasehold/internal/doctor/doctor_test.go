package doctor

import (
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// graded is how good the worst finding of a check is, and all that it says.
func graded(r Report, check string) (Grade, string) {
	v := &visit{Report: r}
	said := ""
	for _, f := range r.Findings {
		if f.Check == check {
			said += f.Says + ". " + f.Means + " " + f.Change + "\n"
		}
	}
	return v.grade(check), said
}

func look(t *testing.T, rdb redis.UniversalClient) Report {
	t.Helper()
	return redistest.Must(Look(t.Context(), rdb, ""))(t)
}

func want(t *testing.T, r Report, check string, grade Grade, says ...string) {
	t.Helper()
	got, said := graded(r, check)
	redistest.Check(t, got == grade, "%s is %q, want %q: %s", check, got, grade, said)
	for _, text := range says {
		redistest.Check(t, strings.Contains(said, text), "%s does not say %q: %s", check, text, said)
	}
}

func TestServersSettingsAreJudged(t *testing.T) {
	v := redistest.Newest(t)
	for about, c := range map[string]struct {
		args    []string
		check   string
		grade   Grade
		says    string
		problem bool
	}{
		"noeviction":        {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction", "--appendonly", "yes"}, "eviction", Good, "noeviction", false},
		"allkeys-lru":       {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"}, "eviction", Bad, "two may hold it", true},
		"volatile-ttl":      {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl", "--appendonly", "yes"}, "eviction", Bad, "All leases expire", true},
		"lru without bound": {[]string{"--maxmemory-policy", "allkeys-lru", "--appendonly", "yes"}, "eviction", Note, "maxmemory is 0", false},
		"nothing on disk":   {nil, "persistence", Bad, "keeps nothing on disk", true},
		"snapshots":         {[]string{"--save", "60 1"}, "persistence", Note, "saves snapshots", false},
		"appendonly":        {[]string{"--appendonly", "yes"}, "persistence", Note, "everysec", false},
		"synced":            {[]string{"--appendonly", "yes", "--appendfsync", "always"}, "persistence", Good, "forgets nothing", false},
	} {
		r := look(t, redistest.StartServer(t, v, c.args...).Client())
		want(t, r, c.check, c.grade, c.says)
		want(t, r, "version", Good, v.Name[strings.Index(v.Name, "-")+1:])
		want(t, r, "rights", Good)
		want(t, r, "messages", Good, "a message takes")
		want(t, r, "clock", Good)
		want(t, r, "replicas", Note, "no replica")
		redistest.Check(t, r.HasProblem() == c.problem, "%s: %+v", about, r.Findings)
	}
}

func TestOldServersAreNamed(t *testing.T) {
	for _, c := range []struct {
		info  map[string]string
		grade Grade
		says  string
	}{
		{map[string]string{"redis_version": "6.2.14"}, Bad, "Redis 7.0 or later"},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "7.2.5"}, Bad, "Valkey 8"},
		{map[string]string{"redis_version": "7.0.15"}, Good, "7.0.15"},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.1"}, Good, "Valkey 8.1.1"},
		{map[string]string{}, Unknown, ""},
		{nil, Unknown, "+info"},
	} {
		v := &visit{nodes: []node{{name: "the server", info: c.info}}}
		v.version()
		want(t, v.Report, "version", c.grade, c.says)
	}
}

func TestClockThatIsAMinuteOff(t *testing.T) {
	s, clock := redistest.StartWithClock(t, redistest.Newest(t), "--appendonly", "yes")
	clock.Shift(-time.Minute)
	want(t, look(t, s.Client()), "clock", Note, "1m00s behind")
	clock.Shift(time.Minute)
	want(t, look(t, s.Client()), "clock", Note, "ahead of", "NTP")
}

func TestReplicaAndItsLag(t *testing.T) {
	primary, clock := redistest.StartWithClock(t, redistest.Newest(t), "--appendonly", "yes", "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica := redistest.StartServer(t, redistest.Newest(t), "--replicaof", host+" "+port)
	redistest.Eventually(t, "the primary to see its replica online", func() bool {
		return strings.Contains(primary.Client().Info(t.Context(), "replication").Val(), "state=online")
	})
	want(t, look(t, primary.Client()), "replicas", Note, replica.Addr(), "bytes behind")
	r := look(t, replica.Client())
	want(t, r, "replicas", Bad, "replica itself")
	redistest.Check(t, r.Promises[0].Promise == "Anything at all" && r.Promises[0].Grade == Bad, "of a replica is promised: %+v", r.Promises)
	clock.Shift(-time.Minute)
	want(t, look(t, primary.Client()), "clock", Bad, "the clocks of the server and the replica "+replica.Addr()+" are ", "After a failover")

	// In a quorum a replica has the password of its own primary.
	secret := func(o *redis.Options) { o.Password = "secret" }
	for _, s := range []*redistest.Server{primary, replica} {
		redistest.WantErr(t, s.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	}
	rdbs := []redis.UniversalClient{primary.Client(secret)}
	for range 2 {
		rdbs = append(rdbs, redistest.StartServer(t, redistest.Newest(t), "--appendonly", "yes").Client())
	}
	want(t, redistest.Must(LookQuorum(t.Context(), rdbs, ""))(t), "clock", Bad, "and the replica "+replica.Addr()+" are ")

	v := &visit{nodes: []node{{name: "the server", info: map[string]string{
		"role": "master", "master_repl_offset": "50000000", "slave0": "ip=10.0.0.1,port=6379,state=online,offset=1,lag=1",
	}}}}
	v.replicas()
	want(t, v.Report, "replicas", Bad, "49999999 bytes behind")
}

func TestMissingRightsAreListed(t *testing.T) {
	s := redistest.StartServer(t, redistest.Newest(t), "--appendonly", "yes")
	admin := s.Client()
	set := func(rules ...string) {
		t.Helper()
		redistest.WantErr(t, admin.ACLSetUser(t.Context(), "app", append([]string{"reset", "on", ">secret"}, rules...)...).Err())
	}
	all := redistest.Must(redistest.DocumentedACL())(t)
	as := func() *redis.Client {
		return s.Client(func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	}
	set(all...)
	r := look(t, as())
	want(t, r, "rights", Good)
	want(t, r, "eviction", Unknown, "+info")
	want(t, r, "messages", Good)
	set(append(all, "-zadd", "-publish")...)
	r = look(t, as())
	want(t, r, "rights", Bad, "+publish +zadd")
	want(t, r, "messages", Bad, "nothing can be published")
	set("+@all", "~other:*", "&other:*")
	want(t, look(t, as()), "rights", Bad, "&leasehold:inbox:* ~leasehold:*")
}

// What the documents ask for is what doctor tries.
func TestAllDocumentedRightsAreTried(t *testing.T) {
	rules := redistest.Must(redistest.DocumentedACL())(t)
	more := redistest.Must(redistest.DocumentedClusterACL())(t)
	tried := Needed("k", "c")
	maps.Copy(tried, Needed("{k}", "{k}"))
	for _, rule := range append(rules, more...) {
		name, ok := strings.CutPrefix(rule, "+")
		if !ok || slices.Contains([]string{"@scripting", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"}, name) || strings.HasPrefix(name, "cluster|") || name == "command" {
			continue // tried together, by the messages, or by the client library
		}
		redistest.Check(t, tried[name] != nil, "doctor does not try %s: add it to Needed", rule)
	}
}

// Each right that is missing is found out by its own command, whatever else the server finds wrong with that.
func TestEachMissingRightIsFoundOut(t *testing.T) {
	for _, version := range redistest.NeedServers(t) {
		server := redistest.Shared(t, version)
		rdb := server.Client()
		for name, words := range Needed("k", "c") {
			redistest.WantErr(t, rdb.ACLSetUser(t.Context(), "limited", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+name).Err())
			limited := server.Client(func(o *redis.Options) { o.Username, o.Password = "limited", "secret" })
			err := limited.Do(t.Context(), words...).Err()
			redistest.Check(t, redis.IsPermissionError(err), "without +%s, %v is answered with %v", name, words, err)
		}
	}
}

func TestProxyThatPassesNoMessages(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.StartServer(t, redistest.Newest(t), "--appendonly", "yes").Addr())
	p.DropMessages(true)
	r := look(t, p.Client())
	want(t, r, "messages", Bad, "messages do not arrive", "every 1.5 s")
	redistest.Check(t, slices.ContainsFunc(r.Promises, func(p Promise) bool { return p.Grade == Bad && strings.Contains(p.Promise, "in order") }),
		"the promises are %+v", r.Promises)
	p.DropMessages(false)
	p.SetHook(closing("SUBSCRIBE"))
	r = look(t, p.Client())
	want(t, r, "messages", Bad, "no subscription comes about", "every 1.5 s", "+subscribe")
	want(t, r, "rights", Good)
}

func TestAllDeploymentsAreLookedAt(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		if target.Kind == redistest.KindMini {
			t.Skip("the embedded server has no settings")
		}
		r := look(t, target.Admin(t))
		for _, check := range []string{"version", "rights", "messages", "eviction", "clock"} {
			want(t, r, check, Good)
		}
		if target.Kind == redistest.KindCluster {
			_, said := graded(r, "version")
			redistest.Expect(t, strings.Count(said, "\n"), 3, "%d servers were looked at")
		}
		if target.Kind == redistest.KindSentinel {
			want(t, r, "replicas", Note, "bytes behind")
		}
	})
}

// Of a server that is away, or that refuses the password, nothing is said to be fine.
func TestServerThatCannotBeAskedIsAnError(t *testing.T) {
	s := redistest.StartServer(t, redistest.Newest(t), "--requirepass", "right")
	for _, o := range []redis.Options{{Addr: "127.0.0.1:1", MaxRetries: -1}, {Addr: s.Addr()}, {Addr: s.Addr(), Password: "wrong"}} {
		rdb := redis.NewClient(&o)
		r, err := Look(t.Context(), rdb, "")
		redistest.Check(t, err != nil && len(r.Findings) == 0, "%s with the password %q: %v, %+v", o.Addr, o.Password, err, r)
		_ = rdb.Close()
	}
}

// closing ends the connections that bring a command.
func closing(command string) func(redistest.Event) redistest.Action {
	return func(e redistest.Event) redistest.Action {
		if e.Stage == redistest.OnRequest && e.Cmd[0] == command {
			return redistest.Close
		}
		return redistest.Pass
	}
}

// A command that gets no answer was not found to be allowed.
func TestRightThatIsNotFoundOutIsUnknown(t *testing.T) {
	p := redistest.NewProxy(t, redistest.Mini(t).Addr())
	p.SetHook(closing("ZMSCORE"))
	want(t, look(t, p.Client(func(o *redis.Options) { o.MaxRetries = -1 })), "rights", Unknown, "ZMSCORE")
}

func TestServersOfAQuorumAreJudgedTogether(t *testing.T) {
	t.Parallel()
	v := redistest.Newest(t)
	var servers []*redistest.Server
	var rdbs []redis.UniversalClient
	for range 3 {
		s := redistest.StartServer(t, v, "--maxmemory-policy", "noeviction")
		servers, rdbs = append(servers, s), append(rdbs, s.Client())
	}
	look := func(rdbs ...redis.UniversalClient) Report {
		t.Helper()
		return redistest.Must(LookQuorum(t.Context(), rdbs, ""))(t)
	}
	r := look(rdbs...)
	want(t, r, "quorum", Good, "3 different servers answer", "1 of them may be lost")
	want(t, r, "persistence", Note, "abstains for one TTL")
	want(t, r, "messages", Good, servers[2].Addr()+": a message takes")
	redistest.Check(t, !r.HasProblem() && r.Promises[0].Grade == Good, "%+v", r)

	r = look(rdbs[0], rdbs[1], servers[0].Client())
	want(t, r, "quorum", Bad, "are the same server")
	redistest.Check(t, r.Promises[0].Grade == Bad, "promised with one server twice: %+v", r.Promises)
	want(t, look(rdbs[0], rdbs[1]), "quorum", Bad, "there are 2 servers")

	redistest.WantErr(t, rdbs[1].ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	redistest.WantErr(t, rdbs[1].ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	want(t, look(rdbs...), "eviction", Bad, servers[1].Addr()+" has maxmemory-policy allkeys-lru")

	dir := redistest.Must(rdbs[0].ConfigGet(t.Context(), "dir").Result())(t)["dir"]
	redistest.NoError(t, os.RemoveAll(dir))
	redistest.Eventually(t, "a snapshot to fail", func() bool {
		_ = rdbs[0].BgSave(t.Context()).Err()
		return strings.Contains(rdbs[0].Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	want(t, look(rdbs...), "disk", Bad, servers[0].Addr()+" says rdb_last_bgsave_status: err", "may refuse writes")

	host, port, _ := net.SplitHostPort(servers[1].Addr())
	redistest.WantErr(t, rdbs[2].SlaveOf(t.Context(), host, port).Err())
	want(t, look(rdbs...), "quorum", Bad, servers[2].Addr()+" is a replica")

	servers[2].Kill()
	want(t, look(rdbs...), "quorum", Bad, servers[2].Addr()+" does not answer")
	servers[1].Kill()
	_, err := LookQuorum(t.Context(), rdbs, "")
	redistest.Check(t, err != nil, "no error without a majority")
}
