package envelope_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// published is the stamp of the envelopes here.
const published = 1_700_000_000_123_456

// stored is e as it lies in Redis.
func stored(e envelope.Envelope) string {
	prefix, suffix := e.Encode()
	return envelope.Join(prefix, published, suffix)
}
