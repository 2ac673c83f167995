package doctor

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestServersOfAQuorumAreJudgedTogether(t *testing.T) {
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
	redistest.Check(t, r.Problems() <= 0 && r.Promises[0].Grade == Good, "%+v", r)

	r = look(rdbs[0], rdbs[1], servers[0].Client())
	want(t, r, "quorum", Bad, "are the same server")
	redistest.Check(t, r.Promises[0].Grade == Bad, "promised with one server twice: %+v", r.Promises)
	want(t, look(rdbs[0], rdbs[1]), "quorum", Bad, "there are 2 servers")

	redistest.WantErr(t, rdbs[1].ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	redistest.WantErr(t, rdbs[1].ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	want(t, look(rdbs...), "eviction", Bad, servers[1].Addr()+" has maxmemory-policy allkeys-lru")

	servers[2].Kill()
	want(t, look(rdbs...), "quorum", Bad, servers[2].Addr()+" does not answer")
	servers[1].Kill()
	_, err := LookQuorum(t.Context(), rdbs, "")
	redistest.Check(t, err != nil, "no error without a majority")
}
