package runner

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is what /proc says about one (proc(5), /proc/PID/stat).
type process struct {
	pid, parent, group int
	state              byte
	start              string // tells it from a later process of the same number
}

// family lists this process's descendants, by the kernel's lists of children
// (proc(5), /proc/PID/task/TID/children): in a large system that is much faster
// than a look at all processes. It reports false where there are no such lists.
// What processes says of its completeness holds here too.
func family() ([]process, bool) {
	var list []process
	for next := []int{unix.Getpid()}; len(next) > 0; next = next[1:] {
		dir := "/proc/" + strconv.Itoa(next[0]) + "/task"
		tasks, _ := os.ReadDir(dir)
		for _, task := range tasks {
			text, err := os.ReadFile(dir + "/" + task.Name() + "/children")
			if err != nil && next[0] == unix.Getpid() {
				return nil, false
			}
			for _, word := range strings.Fields(string(text)) {
				pid, _ := strconv.Atoi(word)
				// A zombie may be the dead first thread of a process that lives.
				if p, ok := readProcess(pid); ok {
					list, next = append(list, p), append(next, pid)
				}
			}
		}
	}
	return list, true
}

// processes lists the live processes. One that appears or goes meanwhile may
// be missing: who must have all of them asks until none is left.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var list []process
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok && p.state != 'Z' && p.state != 'X' {
				list = append(list, p)
			}
		}
	}
	return list
}

func readProcess(pid int) (process, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name in parentheses may contain anything, also parentheses.
	after := string(text[strings.LastIndexByte(string(text), ')')+1:])
	field := strings.Fields(after)
	if len(field) < 20 {
		return process{}, false
	}
	p := process{pid: pid, state: field[0][0], start: field[19]}
	p.parent, _ = strconv.Atoi(field[1])
	p.group, _ = strconv.Atoi(field[2])
	return p, true
}

func isStopped(pid int) bool {
	p, ok := readProcess(pid)
	return ok && p.state == 'T'
}

// strangers are the children that this process has had from the beginning: a
// shell may have started some and then become golock. They and what descends
// from them are no part of the run.
func strangers() []process {
	var info unix.Siginfo
	if unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD {
		return nil // as nearly always
	}
	var list []process
	for _, p := range processes() {
		if p.parent == unix.Getpid() {
			list = append(list, p)
		}
	}
	return list
}

// descendants are the children of root, their children, and so on, but for
// those of the strangers.
func descendants(all []process, root int, strangers []process) []process {
	children := map[int][]process{}
	for _, p := range all {
		known := func(s process) bool { return s.pid == p.pid && s.start == p.start }
		if !slices.ContainsFunc(strangers, known) {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for next := children[root]; len(next) > 0; {
		p := next[0]
		found = append(found, p)
		next = append(next[1:len(next):len(next)], children[p.pid]...)
	}
	return found
}

func inGroup(all []process, group int) []process {
	var found []process
	for _, p := range all {
		if p.group == group {
			found = append(found, p)
		}
	}
	return found
}

// signal sends a signal to that very process, not to a later one that was
// given its number.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ENOSYS {
		_ = unix.Kill(p.pid, sig)
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readProcess(p.pid); ok && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

// endDescendants kills all that descends from this process, but for strangers,
// as often as it takes until the kernel says that no child is left. Those that are found are
// stopped before they are killed, so that none has children meanwhile. collected
// is told of each one's end; pause waits a little, or until a child has ended.
func endDescendants(strangers []process, collected func(pid int, ws syscall.WaitStatus), pause func(time.Duration)) {
	for wait := time.Millisecond; ; wait = min(2*wait, lookAgain) {
		all, ok := family()
		if !ok {
			all = processes()
		}
		found := descendants(all, unix.Getpid(), strangers)
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			for _, p := range found {
				p.signal(sig)
			}
		}
		pause(wait)
		for {
			var ws syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG, nil)
			if err == unix.ECHILD {
				return
			}
			if err == nil && pid > 0 {
				collected(pid, ws)
			} else if err != unix.EINTR {
				break
			}
		}
		if len(strangers) > 0 && len(found) == 0 {
			return
		}
	}
}

// becomeSubreaper makes descendants whose parent dies children of this process
// instead of init's (prctl(2)).
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
