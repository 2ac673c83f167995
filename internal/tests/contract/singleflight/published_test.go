package singleflight

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/internal/tests/harness"
	"github.com/leasehold-go/leasehold/singleflight"
)

// After the publish nobody passes through the lock: all who wait have the value by
// one message each, at the same time.
func TestNoConvoyAfterThePublish(t *testing.T) {
	some(t, func(f *fixture) {
		f.teach()
		g, _ := f.open()
		o := newOrigin(f)
		first := fetch(f, f.Context(), g, "k", o.load)
		l := o.next(f)
		const processes = 10
		var waits []*pending[string]
		var wires []*harness.Wire
		for range processes {
			other, wire := f.open()
			waits, wires = append(waits, fetch(f, f.Context(), other, "k", never(f))), append(wires, wire)
		}
		for _, w := range wires {
			redistest.Eventually(f, "a process to wait, and its subscription", func() bool { return w.Answered("load ask") > 0 })
		}
		l.returns("v")
		first.got()
		for i, p := range waits {
			p.want("v", singleflight.Shared)
			redistest.Expect(f, wires[i].Sent("load enter"), 1, "a process that waited has entered %d times")
			redistest.Expect(f, wires[i].Sent("get"), 1, "a process that waited has looked %d times")
		}
		redistest.Expect(f, f.Queued("k"), 0, "%d are in the queue")
	})
}

// No value that a user can have is taken for "nothing", "not found" or a failure.
func TestNoPlaceholderIsServed(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open(func(c *singleflight.Config[string]) { c.NotFoundTTL, c.ErrorTTL = time.Minute, time.Minute })
		other, _ := f.open()
		values := []string{"", "null", "nil", "*", "-", "\x00", "not found", "NOT_FOUND", "__null__", "\xc0", "{}", "0", "false", singleflight.ErrNotFound.Error()}
		for kind := envelope.Value; kind <= envelope.Unmarshalable; kind++ {
			prefix, suffix := envelope.Envelope{Kind: kind, Payload: "x"}.Encode()
			values = append(values, envelope.Join(prefix, time.Now().UnixMicro(), suffix))
		}
		for i, v := range values {
			key := fmt.Sprint(i)
			fetch(f, f.Context(), g, key, gives(v)).want(v, singleflight.Loaded)
			fetch(f, f.Context(), g, key, never(f)).want(v, singleflight.Cached)
			fetch(f, f.Context(), other, key, never(f)).want(v, singleflight.Cached)
			s := inspect(f, g, key)
			redistest.Check(f, s.Cached && !s.NotFound && s.Failure == "", "%q: %+v", v, s)
		}
	})
}

// In a batch the key that is invalidated isn't stored, and the others are.
func TestDoManyOneOfABatchIsInvalidated(t *testing.T) {
	some(t, func(f *fixture) {
		g, _ := f.open()
		other, _ := f.open()
		b := newBatches()
		b.gate = make(chan struct{})
		many := doMany(f, f.Context(), g, []string{"a", "b", "c"}, b)
		redistest.Get(f, "the load", b.began)
		redistest.WantErr(f, other.Invalidate(f.Context(), "b"))
		b.gate <- struct{}{}
		redistest.NoError(f, many.got("a", "A", "b", "B", "c", "C"))
		for key, want := range map[string]bool{"a": true, "b": false, "c": true} {
			_, there, err := other.Peek(f.Context(), key)
			redistest.Check(f, there == want && err == nil, "%s is cached: %v, %v", key, there, err)
			redistest.Check(f, f.freed(key), "the lease of %s is held yet", key)
		}
	})
}
