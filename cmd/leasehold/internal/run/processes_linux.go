package run

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_BOOTTIME

type process struct {
	pid, parent, group, session int
	name                        string
	state                       byte
	threads                     int
	start                       string // when it began; with the pid, it names one process for ever
}

// over reports whether the process has ended and only waits to be reaped. The main thread may
// end before the others: then it looks alike, and they go on.
func (p process) over() bool {
	return p.state == 'X' || p.state == 'Z' && p.threads <= 1
}

func readProcess(pid int) (p process, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	// The name may hold blanks and parentheses: the last one ends it.
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return p, false
	}
	fields := strings.Fields(string(text[to+1:]))
	if len(fields) < 20 {
		return p, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return process{
		pid: pid, name: string(text[from+1 : to]), state: fields[0][0],
		parent: number(1), group: number(2), session: number(3), threads: number(17), start: fields[19],
	}, true
}

// allProcesses reads all that run. It is no snapshot: a process that is forked meanwhile may
// be missing, so that a caller that needs all of them looks again until it finds none.
func allProcesses() map[int]process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make(map[int]process, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				all[pid] = p
			}
		}
	}
	return all
}

// descendants are the processes that descend from ancestor, run in one of the sessions, and
// have not ended; the trees below except are left out. Processes in another session made
// themselves independent on purpose, as daemons do.
func descendants(ancestor int, sessions, except []int) (found []process) {
	children := map[int][]process{}
	for _, p := range allProcesses() {
		children[p.parent] = append(children[p.parent], p)
	}
	for next := []int{ancestor}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			if slices.Contains(except, p.pid) {
				continue
			}
			next = append(next, p.pid)
			if !p.over() && slices.Contains(sessions, p.session) {
				found = append(found, p)
			}
		}
	}
	return found
}

// send signals this process and no other that got its pid since.
func (p process) send(sig syscall.Signal) error {
	held, err := os.FindProcess(p.pid) // by a pidfd, where the kernel has them
	if err != nil {
		return err
	}
	defer held.Release()
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return os.ErrProcessDone
	}
	return held.Signal(sig)
}

// adopt makes this process the parent of its descendants' orphans.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// byDescent reports whether this system shows which process descends from which.
func byDescent() bool {
	_, ok := readProcess(unix.Getpid())
	return ok
}

func isStopped(pid int) bool {
	p, ok := readProcess(pid)
	return ok && p.state == 'T'
}

// stopSelf stops this process until the shell, or the guard, lets it go on. The signal goes to this thread, which
// takes it before it returns from the call. It does not wait to hear of the SIGCONT: a Ctrl-Z that follows before
// this process runs again takes a SIGCONT away that nobody has heard yet.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// isOrphaned reports whether no shell can let a stopped process of the group go on: no
// process of the group has a parent in another group of the session. Guards do not count.
// The kernel counts them, so that it does not notice by itself.
func isOrphaned(group int) bool {
	all := allProcesses()
	for _, p := range all {
		parent, ok := all[p.parent]
		if p.group == group && !p.over() && ok && parent.session == p.session && parent.group != group && !isGuard(parent.pid) {
			return false
		}
	}
	return true
}

func isGuard(pid int) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	words := bytes.SplitN(text, []byte{0}, 3)
	return len(words) == 3 && string(words[1]) == guardCommand
}

// initiallyIgnored reports whether the process that started this one had the signal
// ignored. The runtime keeps that for some signals only; of the others nothing is known.
func initiallyIgnored() map[syscall.Signal]bool {
	ignored := map[syscall.Signal]bool{}
	text, _ := os.ReadFile("/proc/self/status")
	_, behind, _ := strings.Cut(string(text), "\nSigIgn:")
	line, _, _ := strings.Cut(behind, "\n")
	mask, _ := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		ignored[sig] = mask&(1<<(uint(sig)-1)) != 0
	}
	return ignored
}

// honoursSetuid reports whether a file whose mode says so may run as its owner.
func honoursSetuid(path string) bool {
	var fs unix.Statfs_t
	kept, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return (err != nil || kept != 1) && (unix.Statfs(path, &fs) != nil || fs.Flags&unix.ST_NOSUID == 0)
}
