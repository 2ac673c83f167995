package scripts_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/totals"
)

// What a permit that is free costs the server: seven commands within the scripts to take it and give it back, and
// twelve in a family with a total. A semaphore without a total pays nothing for those that have one.
func TestCommandsOfAFreePair(t *testing.T) {
	srv := redistest.StartServer(t, redistest.Newest(t))
	rdb, stats := srv.Client(), srv.Client()
	client := redistest.Must(call.NewClient(rdb))(t)
	ctx := context.Background()
	family := keys.Family{Kind: keys.Semaphore, Name: "cost"}
	plain := redistest.Must(permits.Family{Family: family}.Resource("k"))(t)
	withTotal := redistest.Must(totals.NewFamily(family, 10, 0).Resource("k"))(t)
	for _, c := range []struct {
		name     string
		resource protocol.Resource
		most     int64
	}{{"without a total", plain, 7}, {"with a total", withTotal, 12}} {
		pair := func(seq uint64) {
			q := c.resource.Request(protocol.Terms{Handle: hereHandle, Seq: seq, Permits: 1, TTL: time.Minute, Limit: 5, Want: 1})
			for _, one := range []*call.Call{q.Enter(protocol.EnterOptions{Wait: true}), q.Leave(0, false)} {
				v, err := client.Do(ctx, one)
				redistest.CheckNow(t, err == nil && v[0] == 1, "%v, %v", v, err)
			}
		}
		pair(1) // teaches the scripts
		redistest.WantErr(t, stats.ConfigResetStat(ctx).Err())
		pair(2)
		n := int64(0)
		for name, calls := range redistest.Commandstats(t, stats) {
			if name != "evalsha" && name != "info" && !strings.HasPrefix(name, "config") {
				n += calls
			}
		}
		redistest.Check(t, n != 0 && n <= c.most, "%s a free pair takes %d commands; want %d at most", c.name, n, c.most)
	}
}
