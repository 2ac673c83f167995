package loads_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// waiting is a request that waits for the load of a token.
func waiting(tb testing.TB, token int64) *loads.Request {
	tb.Helper()
	named := redistest.Must(keys.Family{Kind: keys.Flight, Name: "t"}.Resource("k"))(tb)
	q := loads.NewResource(named, 0).Request(protocol.Terms{Handle: strings.Repeat("a", 22), Seq: 1, Permits: 1, TTL: time.Minute, Limit: 1}).(*loads.Request)
	const queued = 2
	redistest.WantErr(tb, redistest.ErrorOf(q.ReadEnter(&call.Call{}, []int64{queued, 1, 1000, token, 1})))
	return q
}

// Whatever comes through the inbox, a wait for a load ends by its result alone. A message about another load is old:
// that wait ended otherwise, and another one began.
func FuzzForgedMessages(f *testing.F) {
	for _, s := range []string{
		"1 1750000000000000 2000 7", "1 0 -1 7", "1 9223372036854775807 9223372036854775807 7",
		"1 1 0 7 S", "1 1 0 0 Svalue", "1 1 0 7 A", "1 1 0 7 F", "1 1 0 7 H\xff\x00", "2 1 1 1", "x",
		"1 1 0 6 S", "1 1 0 6 Hvalue", "1 1 0 6 F",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := waiting(t, 7).ReadMessage(text)
		token, _, err := loads.ParseMessage(text)
		redistest.CheckNow(t, ok == (err == nil && token == 7), "%q, of load %d (%v), is believed: %v", text, token, err, ok)
		if !ok {
			return
		}
		answer, isAnswer := v.Answer.(loads.Answer)
		switch {
		case v.Code == life.Gone:
		case v.Code != life.Answered || !isAnswer || answer.Result == nil || answer.Token != 7:
			t.Errorf("%q ends the wait as %+v", text, v)
		}
	})
}
