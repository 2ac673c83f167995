package lease

import (
	"testing"
	"unsafe"
)

// An attempt fills a size class of Go's allocator: one field more costs 64 bytes for each lease.
func TestAttemptTakesHalfAKilobyte(t *testing.T) {
	if size := unsafe.Sizeof(attempt{}); size > 512 {
		t.Errorf("an attempt takes %d bytes, want at most 512", size)
	}
}
