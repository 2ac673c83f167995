package peers

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.UseServers()
	redistest.Main(m)
}
