// Package faults holds what each handle does under each fault, on real servers.
package faults

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainOf(m, 8) }

// closeBound is how long a Close may take.
const closeBound = 30 * time.Second
