package scripts_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/luascripts"
)

// integers makes what a script might answer of fuzzed bytes: small numbers of a
// byte each, and eight bytes behind 0xff.
func integers(data []byte) []int64 {
	var all []int64
	for len(data) > 0 && len(all) < 64 {
		if data[0] != 0xff || len(data) < 9 {
			all, data = append(all, int64(int8(data[0]))), data[1:]
			continue
		}
		all, data = append(all, int64(binary.LittleEndian.Uint64(data[1:]))), data[9:]
	}
	return all
}

// Whatever a script of another version, or another's script, answers, its reply
// is taken for what it may mean or refused, and ends no process.
func FuzzReplies(f *testing.F) {
	huge := append([]byte{0xff}, binary.LittleEndian.AppendUint64(nil, math.MaxInt64)...)
	f.Add([]byte{1, 5, 10, 7, 0, 0}, "", byte(0))
	f.Add([]byte{2, 5, 10, 1, 1, 1, 3, 10, 7}, "", byte(0))
	f.Add([]byte{5, 10, 1, 1, 1, 1, 10, 7, 2, 0, 0}, "", byte(2))
	f.Add([]byte{8, 5, 0, 0, 0}, "an envelope", byte(1))
	f.Add([]byte{5, 10, 0, 8, 0, 7}, "7 1 S", byte(1))
	f.Add([]byte{5, 10, 7, 1, 0, 0xfe, 0, 0xfe}, "h.1.1.1\x00v\x00f", byte(0))
	f.Add([]byte{5, 10, 7, 1, 0, 0xfe, 0, 0xfe}, "hhhhhhhhh.1.1.1\x00\x00", byte(0))
	f.Add(append([]byte{1, 5}, append(append(huge, huge...), 0, 0)...), "", byte(3))
	res := newPermitsResource(keys.Resource{}, true)
	flight := newLoadsResource(keys.Resource{})
	f.Fuzz(func(t *testing.T, data []byte, text string, n byte) {
		v, texts := integers(data), strings.Split(text, "\x00")
		if text == "" {
			texts = nil
		}
		for _, r := range []*resource{res, flight} {
			c := &call.Call{Text: texts}
			one := r.attempt(hereHandle, 1, 1, time.Minute, 1)
			if got, err := one.ReadEnter(c, v); err == nil {
				redistest.Check(t, got.Code >= life.Granted && got.Code <= life.Answered, "code %d is none", got.Code)
				redistest.Check(t, got.Code != life.Answered || len(texts) == 1 && got.Answer != nil, "code %d with %d texts", got.Code, len(texts))
			}
			waiters := make([]protocol.Request, n)
			for i := range waiters {
				waiters[i] = one.Request
			}
			got, err := r.ReadAsk(c, v, waiters)
			redistest.Check(t, err != nil || len(got.Waiters) == int(n), "%d standings of %d waiters", len(got.Waiters), n)
			if got, err := one.ReadLeave(v); err == nil && r == res && len(v) > 2 {
				want := 0
				for i := 2; i < len(v); i += 3 {
					if v[i] != 0 { // else it says that there is more
						want++
					}
				}
				redistest.Check(t, len(got.Grants) == want && got.More == (want < (len(v)-2)/3), "%d grants, more %v in %v", len(got.Grants), got.More, v)
			}
			_, _ = one.ReadRenew(v)
		}
		got, err := loads.ReadPublish(v)
		redistest.Check(t, err != nil || got.State >= loads.LeaseOver && got.State <= loads.HandedOnly, "state %d is none", got.State)
		_, _ = loads.ReadInvalidate(v, texts)
		_, _ = loads.ReadPut(v, texts)
		near, err := loads.ReadNearRead(v, texts)
		redistest.Check(t, err != nil || !near.Same || near.Text == "", "a near read answers %+v", near)
		_, _ = loads.ReadNearTell(v, texts)
		if got, err := loads.ReadInspect(v, texts); err == nil && (got.Kept < 0 || got.Failed < 0) {
			t.Errorf("inspected %+v", got)
		}
	})
}

// Anybody who may publish on an inbox can send a message, and anybody who may
// write the keys a record: such a text is understood or refused, no more.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		"1 1750000000000000 2000 7", "1 1750000000000000 -3 0", "1 1750000000000000 0 7 Svalue", "1 1 0 7 H", "1 1 0 7 A", "1 1 0 7 F",
		"7 1 S", "7 2 Avalue", "1 1 1", "1  1 1 1", "-9223372036854775808 -9223372036854775808 -9223372036854775808 -1",
		"9223372036854775808 1 1 1", "1 1 0 7 ", "1 1 0 7 X", "1 1 5 7 S", "NaN 1e3 0x10 +1",
		"N 1 1750000000000 hhh leasehold:flt:{n:k}:near", "N 1 nan hhh {n:k}:near", "N 1  hhh }:", "A hhh 1 2", "A ", "A hhh",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		grant, isGrant := permits.ParseMessage(text)
		_, record, notLoad := loads.ParseMessage(text)
		switch {
		case isGrant && notLoad == nil:
			t.Errorf("%q is a grant and a record: %+v, %+v", text, grant, record)
		case isGrant && grant.Term < 0:
			t.Errorf("%q grants for %v", text, grant.Term)
		case notLoad == nil && len(record.Envelope) >= len(text):
			t.Errorf("%q has an envelope of %d bytes", text, len(record.Envelope))
		}
		d, ok := loads.ParseDrop(text)
		redistest.Check(t, !ok || !isGrant && notLoad != nil && d.Number != "" && d.Handle != "" && d.Score != "", "%q is also the drop %+v", text, d)
		loads.ParseAck(text, func(string, string) {})
		if token, r, err := loads.ParseRecord(text); err != nil && (token != 0 || r != loads.Record{}) {
			t.Errorf("%q is %d, %+v and %v", text, token, r, err)
		}
	})
}

// fuzzed is a server for all inputs of a fuzz target in one process.
type fuzzed struct {
	*testing.T
	rdb    *redis.Client
	client *call.Client
}

func (z fuzzed) do(c *call.Call) []int64 {
	z.Helper()
	return redistest.Must(z.client.Do(context.Background(), c))(z)
}

// serve starts an embedded server for a target, whose inputs each find it empty, with a clock that stands still.
func serve(f *testing.F) func(t *testing.T) fuzzed {
	mini := redistest.Mini(f)
	mini.SetTime(time.UnixMilli(1_750_000_000_123))
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	f.Cleanup(func() { _ = rdb.Close() })
	client := redistest.Must(call.NewClient(rdb))(f)
	return func(t *testing.T) fuzzed {
		rdb.FlushAll(context.Background())
		return fuzzed{t, rdb, client}
	}
}

// lasting is longer than an input takes; most is what the embedded server can count in.
const (
	lasting = time.Minute
	most    = 100 * 365 * 24 * time.Hour
)

// all keys there are, each of which has to expire.
func (z fuzzed) expire() {
	z.Helper()
	ctx := context.Background()
	for _, key := range z.rdb.Keys(ctx, "*").Val() {
		ms, err := z.rdb.Do(ctx, "PTTL", key).Int64()
		redistest.Check(z, err == nil && ms != -1, "%q never expires", key)
	}
}

// Requests within the bounds of the public packages, at the edges of them too,
// are answered without an error of the scripts, and leave nothing when they end.
func FuzzRequests(f *testing.F) {
	f.Add(1, 1, int64(time.Minute), int64(0), int64(0), 0, true)
	f.Add(1, 1, int64(1<<63-1), int64(1<<53), int64(0), 1, true)
	f.Add(1000, 100_000, int64(1<<63-1), int64(1<<62), int64(1), 1<<31, false)
	f.Add(999, 1000, int64(100*time.Millisecond+1), int64(-1), int64(1<<53), 3, false)
	f.Add(2, 1, int64(time.Hour), int64(1), int64(-1), -1, false)
	server := serve(f)
	f.Fuzz(func(t *testing.T, permits, limit int, ttl, void, ticket int64, waiters int, fenced bool) {
		// What semaphore and mutex let through.
		permits, limit = 1+abs(permits)%1000, 1+abs(limit)%100_000
		if fenced {
			permits, limit = 1, 1
		}
		permits = min(permits, limit)
		term := time.Duration(max(ttl, int64(100*time.Millisecond)))
		z := server(t)
		res := permitsNamed(t, "n", fenced)
		r := res.attempt(hereHandle, 1, permits, term, limit)
		w := res.attempt(thereHandle, 1<<63, permits, term, limit)
		o := protocol.EnterOptions{Wait: true, MaxWaiters: abs(waiters), VoidAfter: new(max(0, void))}
		v := z.do(r.Enter(o))
		reply, err := r.ReadEnter(nil, v)
		redistest.CheckNow(t, err == nil && (reply.Code == life.Granted || reply.Code == life.Void), "answered %v, %v", v, err)
		redistest.Check(t, *o.VoidAfter != 0 || reply.Term >= term.Truncate(time.Millisecond), "granted for %v; want %v", reply.Term, term)
		o.VoidAfter, o.Ticket = nil, max(0, ticket)%(1<<53)
		for _, x := range []*request{w, w} {
			v := z.do(x.Enter(o))
			redistest.Must(x.ReadEnter(nil, v))(t)
		}
		c := res.Ask(plain([]*request{w}))
		redistest.Must(res.ReadAsk(c, z.do(c), plain([]*request{w})))(t)
		for _, x := range []*request{r, w} {
			redistest.Must(r.ReadRenew(z.do(x.Renew(protocol.RenewOptions{Term: term}))))(t)
		}
		z.expire()
		used := z.rdb.ZCard(context.Background(), res.Part("holders")).Val()
		redistest.Check(t, used <= int64(limit), "%d permits of %d are held", used, limit)
		for _, x := range []*request{r, w, w} {
			redistest.Must(r.ReadLeave(z.do(x.Leave(max(0, void)%(1<<53), false))))(t)
		}
		z.expire()
		for _, part := range []string{"holders", "queue"} {
			redistest.Expect(t, z.rdb.Exists(context.Background(), res.Part(part)).Val(), 0, "%s is left", part)
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

// What users hand in reaches the scripts as it is, whatever the bytes, and comes back as it was.
func FuzzPayloads(f *testing.F) {
	f.Add([]byte("value"), "", "", int64(time.Minute), int64(0), uint64(7))
	f.Add([]byte("\x00\r\n\xff$-1\r\n"), "value:", strings.Repeat("0", 40), int64(0), int64(time.Second), uint64(1<<53-1))
	f.Add(bytes.Repeat([]byte{0x1b, 0}, 5<<10), strings.Repeat("%s\x00", 3<<10), "'..redis.call('FLUSHALL')..'", int64(-1), int64(1), uint64(0))
	server := serve(f)
	f.Fuzz(func(t *testing.T, payload []byte, seen, poisoned string, keep, remember int64, token uint64) {
		z, ctx := server(t), context.Background()
		kept, remembered := min(time.Duration(keep), most), min(max(0, time.Duration(remember)), most)
		named := redistest.Must(keys.Family{Kind: keys.Flight, Name: "n"}.Resource("k"))(t)
		res := newLoadsResource(named)
		rejected := loads.Rejected{Value: seen, Failure: poisoned}
		r := res.attempt(hereHandle, 1, 1, time.Minute, 1).rejecting(rejected)
		w := res.attempt(thereHandle, 2, 1, time.Minute, 1).rejecting(rejected)
		o := protocol.EnterOptions{VoidAfter: new(int64(1 << 53)), Wait: true}
		enter := func(x *request, o protocol.EnterOptions) protocol.Reply {
			c := x.Enter(o)
			return redistest.Must(x.ReadEnter(c, z.do(c)))(t)
		}
		first := enter(r, o)
		second := enter(w, o)
		redistest.CheckNow(t, first.Code == life.Granted && second.Code == life.Queued && second.Token == first.Token,
			"answered %+v, then %+v", first, second)
		l := loads.Result{Prefix: "p", Suffix: string(payload), Keep: kept, Remember: remembered}
		redistest.Must(loads.ReadPublish(z.do(r.publish(first.Token, 0, l))))(t)
		c := res.Ask(plain([]*request{w}))
		asked, err := res.ReadAsk(c, z.do(c), plain([]*request{w}))
		redistest.CheckNow(t, err == nil && asked.Waiters[0].Code == life.Answered, "asked: %+v, %v", asked, err)
		c = res.inspect()
		v := z.do(c)
		state, err := loads.ReadInspect(v, c.Text)
		redistest.CheckNow(t, err == nil && (kept < lasting || state.Bytes == 17+len(payload)) && (kept > 0 || state.Bytes == 0),
			"inspected %+v, %v", state, err)
		got := enter(w.rejecting(loads.Rejected{}), protocol.EnterOptions{VoidAfter: new(int64(1 << 53))})
		answer, _ := got.Answer.(loads.Answer)
		if kept >= lasting && (got.Code != life.Answered || len(answer.Value) != 17+len(payload) || answer.Value[17:] != string(payload)) {
			t.Errorf("came back as %d %q", got.Code, answer.Value)
		}
		z.expire()
		// And what a guard writes.
		value, seenKey := "guard:{g}:value", "guard:{g}:seen"
		token &= 1<<53 - 1
		set := call.NewScript("guard set", luascripts.GuardSet())
		v = z.do(call.New(set, 2, value, seenKey, strconv.FormatUint(token, 10), payload, call.Milliseconds(max(0, kept))))
		redistest.Check(t, v[0] == 1, "token %d is refused first", token)
		if got := z.rdb.Get(ctx, value).Val(); got != string(payload) && (kept <= 0 || kept >= lasting) {
			t.Errorf("%q came back as %q", payload, got)
		}
	})
}
