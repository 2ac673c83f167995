package quorum

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }
