package redistest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// dieWithParent has the kernel kill a child whose parent is gone, by whatever
// means: a test run that is killed or times out runs no cleanup.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// reserve takes a port for this process, among all that test here, until it ends or closes it.
func reserve(port int) (io.Closer, error) {
	return net.Listen("unix", fmt.Sprintf("@leasehold-test-port-%d", port))
}

func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name before the state is in parentheses and may hold any byte.
	end := bytes.LastIndexByte(stat, ')')
	return end >= 0 && len(stat) > end+2 && stat[end+2] == 'T'
}

// memoryFolder is a folder that lies in memory and has a gigabyte free; "" where there is none.
func memoryFolder() string {
	const shm, tmpfs, wanted = "/dev/shm", 0x01021994, 1 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Type != tmpfs || uint64(fs.Bavail)*uint64(fs.Bsize) < wanted {
		return ""
	}
	return shm
}

// exactThread gives the goroutine a thread of its own that wakes when it is to, and not up
// to 50 µs later, which is the kernel's usual slack.
func exactThread() {
	const setTimerSlack = 29 // of prctl
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}

// sleepUntil sleeps by the kernel's clock: Go's own timers may come a millisecond late where the network is busy.
func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		ts := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&ts, nil)
	}
}
