package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

// Needed is the commands that leasehold sends or that its scripts call. Each is
// tried in a form that changes nothing: on keys that do not exist, or with XX.
func Needed(key, channel string) map[string][]any {
	needed := map[string][]any{
		"time": {"time"}, "ping": {"ping"},
		"evalsha": {"evalsha", strings.Repeat("0", 40), 1, key}, "eval": {"eval", "return 1", 1, key},
		"publish": {"publish", channel, "x"},
		"exists":  {"exists", key}, "get": {"get", key}, "getrange": {"getrange", key, 0, 0}, "strlen": {"strlen", key},
		"set": {"set", key, "x", "xx"}, "del": {"del", key}, "pexpireat": {"pexpireat", key, 1}, "pttl": {"pttl", key},
		"zadd": {"zadd", key, "xx", 1, "x"}, "zcard": {"zcard", key}, "zcount": {"zcount", key, 0, 1},
		"zmscore": {"zmscore", key, "x"}, "zrange": {"zrange", key, 0, 0}, "zrem": {"zrem", key, "x"},
		"zremrangebyrank": {"zremrangebyrank", key, 0, 0}, "zscore": {"zscore", key, "x"},
		"zlexcount": {"zlexcount", key, "-", "+"}, "zunionstore": {"zunionstore", key, 1, key}, "pexpiretime": {"pexpiretime", key},
		"hlen": {"hlen", key}, "hget": {"hget", key, "x"}, "hmget": {"hmget", key, "x"}, "hdel": {"hdel", key, "x"},
		"hset": {"hset", key, "x", "x", "y"}, // with a word too few, which the server says after it looked at the rights
	}
	if strings.Contains(channel, "{") { // a sharded channel, in a Cluster
		delete(needed, "publish")
		needed["spublish"] = []any{"spublish", channel, "x"}
		needed["asking"] = []any{"asking"} // while a slot moves
	}
	return needed
}

// inbox is a channel as a handle of the id would have it for a key: see messages.
func (v *visit) inbox(id string) (channel, pattern string) {
	if v.inCluster() {
		return v.prefix + ":sem:{leasehold-doctor:none}:inbox:" + id, "&" + v.prefix + ":*:inbox:*"
	}
	return v.prefix + ":inbox:" + id, "&" + v.prefix + ":inbox:*"
}

func (v *visit) inCluster() bool {
	_, ok := v.rdb.(*redis.ClusterClient)
	return ok
}

// allowed reports whether the server looked at the rights, found them, and then said no for
// another reason: there is no such script, say, or there are too few words.
func allowed(err error) bool {
	return refused(err) && slices.ContainsFunc([]string{"NOSCRIPT", "ERR wrong number", "WRONGTYPE", "READONLY", "OOM"}, func(begin string) bool {
		return strings.HasPrefix(err.Error(), begin)
	})
}

func (v *visit) rights(ctx context.Context) {
	const check = "rights"
	key := v.prefix + ":sem:{leasehold-doctor:none}:holders"
	channel, pattern := v.inbox("leasehold-doctor")
	var commands, patterns, absent, unknown []string
	needed := Needed(key, channel)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		err := v.rdb.Do(ctx, needed[name]...).Err()
		switch {
		case err == nil || err == redis.Nil || allowed(err):
		case strings.Contains(err.Error(), "access a key"), strings.Contains(err.Error(), "access one of the keys"):
			patterns = append(patterns, "~"+v.prefix+":*")
		case strings.Contains(err.Error(), "access a channel"), strings.Contains(err.Error(), "access one of the channels"):
			patterns = append(patterns, pattern)
		case strings.HasPrefix(err.Error(), "NOPERM"):
			commands = append(commands, "+"+name)
		case strings.HasPrefix(err.Error(), "ERR unknown command"):
			absent = append(absent, strings.ToUpper(name))
		default:
			unknown = append(unknown, strings.ToUpper(name)+" ("+err.Error()+")")
		}
	}
	slices.Sort(patterns)
	missing := append(slices.Compact(patterns), commands...)
	if len(unknown) > 0 {
		v.find(Finding{check, Unknown, "whether the user may do this was not found out: " + strings.Join(unknown, ", "), "", "Run doctor again once the server answers."})
	} else if len(missing) == 0 && len(absent) == 0 {
		v.find(Finding{check, Good, "the user may do all that is needed", "", ""})
	}
	if len(missing) > 0 {
		v.find(Finding{check, Bad, "the user lacks rights: " + strings.Join(missing, " "), "Calls fail with ErrUnavailable, some of them only in rare situations.", "ACL SETUSER NAME " + strings.Join(missing, " ")})
	}
	if len(absent) > 0 {
		v.find(Finding{check, Bad, "the server or a proxy does not know " + strings.Join(absent, ", "), "Calls fail with ErrUnavailable.", "Connect to the server itself, or let the proxy pass these commands."})
	}
}

const rounds = 20

// messages times how long a message takes to arrive. Waiters are told of their turn by one.
func (v *visit) messages(ctx context.Context) {
	const check = "messages"
	channel, pattern := v.inbox("leasehold-doctor-" + rand.Text())
	subscribe, publish, sharded := v.rdb.Subscribe, v.rdb.Publish, ""
	if v.inCluster() {
		subscribe, publish, sharded = v.rdb.SSubscribe, v.rdb.SPublish, "s"
	}
	bad := func(says string) {
		v.find(Finding{
			check, Bad, says,
			"Waiters are not told of their turn: they find out by asking, every 1.5 s. What they hold is as safe as ever.",
			fmt.Sprintf("Connect to the server itself, or let the proxy pass %[1]sSUBSCRIBE and %[1]sPUBLISH; allow +%[2]ssubscribe +%[2]sunsubscribe +%[2]spublish %[3]s.", strings.ToUpper(sharded), sharded, pattern),
		})
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sub := subscribe(ctx, channel)
	defer sub.Close()
	if _, err := sub.ReceiveTimeout(ctx, timeBound); err != nil {
		bad("no subscription comes about: " + err.Error())
		return
	}
	var took []time.Duration
	for i := range rounds {
		began := time.Now()
		if err := publish(ctx, channel, strconv.Itoa(i)).Err(); err != nil {
			bad("nothing can be published: " + err.Error())
			return
		}
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			bad("messages do not arrive")
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	f := Finding{Check: check, Grade: Good, Says: fmt.Sprintf("a message takes %s, at most %s of %d", text.Duration(took[len(took)/2]), text.Duration(took[len(took)-1]), len(took))}
	if took[len(took)/2] > 100*time.Millisecond {
		f.Grade, f.Means = Note, "Each hand-over to a waiter takes that long."
	}
	v.find(f)
}

// promises says which promises hold, by what was found.
func (v *visit) promises() {
	add := func(promise string, grade Grade, because string) {
		v.Promises = append(v.Promises, Promise{promise, grade, because})
	}
	if v.grade("version") == Bad || v.grade("rights") == Bad {
		add("Anything at all", Bad, "the server is too old, or the user lacks rights")
	}
	if v.grade("version") == Unknown || v.grade("rights") == Unknown {
		add("Anything at all", Unknown, "the server's version or the user's rights could not be found out")
	}
	if slices.ContainsFunc(v.nodes, func(n node) bool { return n.info["role"] == "slave" }) {
		add("Anything at all", Bad, "the server is a replica, which refuses writes")
	}
	const limit = "Never more holders than the limit"
	switch {
	case v.grade("eviction") == Bad:
		add(limit, Bad, "the server may evict leases")
	case v.grade("persistence") == Bad:
		add(limit, Bad, "a restart forgets them all")
	case v.grade("persistence") == Note || v.followed():
		add(limit, Note, "but for the last grants before a crash or a failover")
	case v.grade("persistence") == Unknown || v.grade("eviction") == Unknown:
		add(limit, Unknown, "the server does not tell its settings")
	default:
		add(limit, Good, "while the server runs")
	}
	// by says of a promise what a check means for it.
	by := func(promise, check string, bad Grade, ifBad, ifUnknown, ifGood string) {
		switch v.grade(check) {
		case Bad:
			add(promise, bad, ifBad)
		case Unknown:
			add(promise, Unknown, ifUnknown)
		default:
			add(promise, Good, ifGood)
		}
	}
	const untold = "a server does not tell its clock"
	by("Tokens never fall", "clock", Note, "as long as clocks do not go back by more than the time since the last grant; they are apart", untold, "through restart, eviction and failover, by the servers' clocks")
	by("Waiters are served in order, at once", "messages", Bad, "in order yes, but only by asking, every 1.5 s", "no message could be sent", "")
	by("A dead holder is missed for its TTL", "clock", Bad, "after a failover it may be more or less", untold, "")
}

func (v *visit) followed() bool {
	return slices.ContainsFunc(v.nodes, func(n node) bool { return len(n.replicas()) > 0 })
}
