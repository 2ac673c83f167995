package harness

import (
	"context"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// info reads the figures of one section of INFO, "name:value" or, where a value
// has fields, "name:field=value,…", by name and first field.
func info(b testing.TB, rdb *redis.Client, section string) map[string]float64 {
	b.Helper()
	text := redistest.Must(rdb.Info(context.Background(), section).Result())(b)
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		if _, rest, ok := strings.Cut(value, "="); ok {
			value, _, _ = strings.Cut(rest, ",")
		}
		if value == "" || strings.Trim(value, "0123456789.-") != "" {
			continue // words, sizes with a unit
		}
		all[name] = parse(b, value)
	}
	return all
}

// ServerCPU is the CPU time that the server's one thread for commands has used,
// in seconds.
func ServerCPU(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	all := info(b, rdb, "cpu")
	return all["used_cpu_user_main_thread"] + all["used_cpu_sys_main_thread"]
}

// ServerMemory is what the server has allocated, in bytes.
func ServerMemory(b testing.TB, rdb *redis.Client) float64 {
	b.Helper()
	return info(b, rdb, "memory")["used_memory"]
}

// KeyMemory is what the server says that keys take, in bytes, every element
// looked at.
func KeyMemory(b testing.TB, rdb *redis.Client, keys ...string) (bytes float64) {
	b.Helper()
	for _, key := range keys {
		n, err := rdb.MemoryUsage(context.Background(), key, 0).Result()
		redistest.CheckNow(b, err == nil, "MEMORY USAGE %s: %v", key, err)
		bytes += float64(n)
	}
	return bytes
}

// scripted are the commands that the scripts of locks and permits call, as the
// documents list them: commandstats counts those calls too. PUBLISH is sent by no
// client of ours.
var scripted = strings.Fields("exists get getrange set strlen del pexpireat pttl zadd zcard zcount zmscore zrange zrem zremrangebyrank zscore publish")

// Sent is how many commands clients have sent to the server, without what
// scripts call and without the reading of figures. Of TIME, which every waiter's
// script calls once, only what goes beyond that counts.
func Sent(b testing.TB, rdb *redis.Client) (n float64) {
	b.Helper()
	all := info(b, rdb, "commandstats")
	for _, name := range append([]string{"info"}, scripted...) {
		delete(all, "cmdstat_"+name)
	}
	clock := all["cmdstat_time"] - all["cmdstat_evalsha"] - all["cmdstat_eval"]
	delete(all, "cmdstat_time")
	for name, calls := range all {
		if strings.HasPrefix(name, "cmdstat_") {
			n += calls
		}
	}
	return n + max(0, clock)
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
