// Package outages has callers of all three packages at work while something
// happens to their servers, and checks what they were told afterwards.
package outages

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
