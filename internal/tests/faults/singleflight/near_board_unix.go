//go:build unix

package singleflight

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A board is memory that all processes of a test share. For each key it has the present version
// at the origin, and the latest version before which an invalidation has returned.
type board struct{ words []atomic.Uint64 }

const boardKeys = 16

// newBoard makes a board, and returns the file that other processes open it by.
func newBoard(tb testing.TB) (*board, string) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "board")
	redistest.WantErr(tb, os.WriteFile(path, make([]byte, 16*boardKeys), 0o600))
	b := redistest.Must(openBoard(path))(tb)
	return b, path
}

func openBoard(path string) (*board, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	mem, err := syscall.Mmap(int(file.Fd()), 0, 16*boardKeys, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &board{unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&mem[0])), 2*boardKeys)}, nil
}

// origin is the present version of a key.
func (b *board) origin(key int) *atomic.Uint64 { return &b.words[2*key] }

// floor is the version that each call gets which begins now, or a newer one.
func (b *board) floor(key int) *atomic.Uint64 { return &b.words[2*key+1] }

// raise notes that an invalidation has returned which was called at this version.
func (b *board) raise(key int, version uint64) {
	for floor := b.floor(key); ; {
		old := floor.Load()
		if old >= version || floor.CompareAndSwap(old, version) {
			return
		}
	}
}
