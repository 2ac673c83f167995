package lease

import (
	"testing"
	"unsafe"
)

// An attempt fills a size class of Go's allocator: one field more costs 64 bytes for each lease.
func TestAttemptFillsItsSizeClass(t *testing.T) {
	if size := unsafe.Sizeof(attempt{}); size > 416 {
		t.Errorf("an attempt takes %d bytes, want at most 416", size)
	}
}
