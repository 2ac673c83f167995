package scripts_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/life"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/permits"
	"github.com/leasehold-go/leasehold/internal/protocol"
	"github.com/leasehold-go/leasehold/internal/redistest"
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
		if got, err := loads.ReadNearRead(v, texts); err == nil && got.Same && got.Text != "" {
			t.Errorf("a near read answers %+v", got)
		}
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
