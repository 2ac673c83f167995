package scripts_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

// constant is a duration that the scripts set, in ms there.
func constant(t *testing.T, name string) time.Duration {
	t.Helper()
	return time.Duration(number(t, name)) * time.Millisecond
}

// number is a number that the scripts set.
func number(t *testing.T, name string) int64 {
	t.Helper()
	return numberIn(t, luascripts.PermitsRevoke(), name)
}

func numberIn(t *testing.T, script, name string) int64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *local ` + name + ` = (\d+)`).FindStringSubmatch(script)
	redistest.CheckNow(t, m != nil, "the scripts set no %s", name)
	return must(strconv.ParseInt(m[1], 10, 64))(t)
}

// resource is a resource, and the names of its keys.
type resource struct {
	protocol.Resource
	names keys.Resource
}

func newPermitsResource(r keys.Resource, fenced bool) *resource {
	return &resource{permits.NewResource(r, fenced, true), r}
}

// permitsNamed is a key of a family of locks, if they are fenced, or else of permits.
func permitsNamed(t *testing.T, name string, fenced bool) *resource {
	kind := keys.Semaphore
	if fenced {
		kind = keys.Mutex
	}
	return newPermitsResource(redistest.Must(keys.Family{Kind: kind, Name: name}.Resource("k"))(t), fenced)
}

func newLoadsResource(r keys.Resource) *resource { return &resource{loads.NewResource(r, 0), r} }

// Part is the Redis key of one part of the resource.
func (r *resource) Part(part string) string { return r.names.Part(part) }

// attempt is a new attempt of a handle.
func (r *resource) attempt(handle string, seq uint64, n int, ttl time.Duration, limit int) *request {
	t := protocol.Terms{Handle: handle, Seq: seq, Permits: n, TTL: ttl, Limit: limit, Keeps: mayKeep(handle), Want: loads.Rejected{}}
	return &request{Request: r.Request(t), Terms: t, member: t.OwnerID(), res: r}
}

// request is an attempt, and what the tests look at of it.
type request struct {
	protocol.Request
	protocol.Terms
	member string // the owner id as the scripts know it
	res    *resource
	key    string // of a family with a total
}

// mayKeep reports whether a handle may keep leases that nobody uses.
func mayKeep(handle string) bool { return strings.HasPrefix(handle[22:], keys.Keeps) }

// rejecting is the same attempt, which will not do with a value or a failure.
func (r *request) rejecting(rejected loads.Rejected) *request {
	other := *r
	other.Want = rejected
	other.Request = r.res.Request(other.Terms)
	return &other
}

// await makes a request for a load wait for the load of a token, as the reply "queued" does.
func (r *request) await(t interface{ Fatal(...any) }, token uint64) {
	const queued = 2
	must(r.ReadEnter(&call.Call{}, []int64{queued, 1, 1000, int64(token), 1}))(t)
}

// loads is the request as one for the right to load.
func (r *request) loads() *loads.Request { return r.Request.(*loads.Request) }

// publish prepares the publication of a result.
func (r *request) publish(token uint64, void int64, result loads.Result) *call.Call {
	return r.loads().Publish(token, void, result)
}

// inspect prepares the call that a cached value has.
func (r *resource) inspect() *call.Call { return r.Resource.(*loads.Resource).Inspect() }

func plain(all []*request) []protocol.Request {
	requests := make([]protocol.Request, len(all))
	for i, r := range all {
		requests[i] = r.Request
	}
	return requests
}
