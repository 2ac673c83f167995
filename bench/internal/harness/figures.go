package harness

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func info(b testing.TB, rdb *redis.Client, section, name string) (n float64) {
	b.Helper()
	_, rest, found := strings.Cut(redistest.Must(rdb.Info(context.Background(), section).Result())(b), "\n"+name+":")
	_, err := fmt.Sscan(rest, &n)
	redistest.CheckNow(b, found && err == nil, "INFO %s: %s: %v", section, name, err)
	return n
}

// ServerCPU is the CPU time that the server's one thread for commands has used, in seconds.
func ServerCPU(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	return info(b, rdb, "cpu", "used_cpu_user_main_thread") + info(b, rdb, "cpu", "used_cpu_sys_main_thread")
}

func ServerMemory(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	return info(b, rdb, "memory", "used_memory")
}

// KeyMemory is what the server says that keys take, in bytes, every element looked at.
func KeyMemory(b testing.TB, rdb *redis.Client, keys ...string) (bytes float64) {
	b.Helper()
	for _, key := range keys {
		n, err := rdb.MemoryUsage(context.Background(), key, 0).Result()
		redistest.CheckNow(b, err == nil, "MEMORY USAGE %s: %v", key, err)
		bytes += float64(n)
	}
	return bytes
}

// Heap is how many bytes of the heap are in use, after a collection.
func Heap() float64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go of in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// CPU is how long this process has run on any core.
func CPU(b testing.TB) time.Duration {
	b.Helper()
	var u syscall.Rusage
	redistest.WantErr(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
