package envelope_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/envelope"
)

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			data := stored(envelope.Envelope{Kind: envelope.Value, Payload: strings.Repeat("p", n)})
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := envelope.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			e := envelope.Envelope{Kind: envelope.Value, Fresh: time.Second, Payload: strings.Repeat("p", n)}
			b.ReportAllocs()
			for b.Loop() {
				e.Encode()
			}
		})
	}
}
