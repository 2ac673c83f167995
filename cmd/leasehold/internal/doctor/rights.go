package doctor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
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
		"hset": {"hset", key}, // with too few words, which the server says after it looked at the rights
	}
	if strings.Contains(channel, "{") { // a sharded channel, in a Cluster
		delete(needed, "publish")
		needed["spublish"] = []any{"spublish", channel, "x"}
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
