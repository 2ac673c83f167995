package envelope_test

import (
	"fmt"
	"testing"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Decode never panics, and what it accepts has no other form.
func FuzzDecode(f *testing.F) {
	f.Add(stored(example()))
	f.Add(stored(envelope.Envelope{Kind: envelope.TooLarge}))
	f.Add(stored(envelope.Envelope{Kind: envelope.Value, Payload: string(make([]byte, 300))}))
	f.Add("")
	f.Add("\x99\xa3lh1\xb0")
	check := func(t *testing.T, data string) {
		e, err := envelope.Decode(data)
		if err != nil {
			redistest.Check(t, e == (envelope.Envelope{}), "%+v came with %v", e, err)
			return
		}
		prefix, suffix := e.Encode()
		redistest.Expect(t, envelope.Join(prefix, e.Published, suffix), data, "%q decoded to %+v, which is\n%q", data, e)
		got, want := envelope.Head(data), fmt.Sprintf("%s%016d", prefix, e.Published)
		redistest.Check(t, got == want, "the head of %q is %q, want %q", data, got, want)
	}
	f.Fuzz(func(t *testing.T, data string) {
		check(t, data)
		if len(data) >= checksumAt+4 {
			check(t, resum(data)) // or nothing would pass the checksum
		}
	})
}
