package kernel

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Processes calls f with every process that /proc shows, by its directory,
// until f gives false.
func Processes(f func(pid int, dir string) bool) {
	names, _ := os.ReadDir("/proc")
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && !f(pid, "/proc/"+n.Name()) {
			return
		}
	}
}

// Around reports whether this process or one that it descends from has
// something, as far as has can tell by the directory in /proc. What cannot be
// looked into counts as having it: has gives an error then.
func Around(has func(dir string) (bool, error)) bool {
	for pid := os.Getpid(); pid > 0; {
		dir := "/proc/" + strconv.Itoa(pid)
		if yes, err := has(dir); yes || os.IsPermission(err) {
			return true
		}
		s, ok := stat(dir)
		if !ok {
			return false
		}
		pid = s.parent
	}
	return false
}

// Descriptors calls f with the number of each descriptor of a process, until f
// gives false. An error means that they cannot be seen.
func Descriptors(dir string, f func(number string) bool) error {
	list, err := os.Open(dir + "/fd")
	if err != nil {
		return err
	}
	defer list.Close()
	numbers, err := list.Readdirnames(-1)
	for _, n := range numbers {
		if !f(n) {
			return nil
		}
	}
	return err
}

// Hidden reports whether a process is there whose descriptors may not be seen.
func Hidden(pid int) bool {
	err := Descriptors("/proc/"+strconv.Itoa(pid), func(string) bool { return false })
	return os.IsPermission(err)
}

// Eldest keeps those processes of a list that live and are no child of another
// one of it: what several have open, the eldest of them opened.
func Eldest(pids []int) []int {
	var eldest []int
	for _, pid := range pids {
		s, ok := stat("/proc/" + strconv.Itoa(pid))
		if ok && !s.dead() && !slices.Contains(pids, s.parent) {
			eldest = append(eldest, pid)
		}
	}
	return eldest
}

// Describe fills in what /proc tells of a process; 0 stands for one that is not
// known. Since is its start: nobody keeps when it took a lock, or began to wait
// for it. It reports false if there is no such process any more.
func Describe(e *locks.Entry, pid int) bool {
	e.PID, e.UID = pid, -1
	e.Host, _ = os.Hostname()
	dir := "/proc/" + strconv.Itoa(pid)
	s, ok := stat(dir)
	if !ok || s.dead() {
		return false
	}
	ago := time.Duration(locks.BootTime()) - afterBoot(s.start)
	e.Since = time.Now().Add(-ago)
	e.UID = owner(dir)
	if text, err := os.ReadFile(dir + "/cmdline"); err == nil && len(text) > 0 {
		e.Command = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	return true
}

// ticksPerSecond is USER_HZ, 100 on every architecture that Go runs on.
const ticksPerSecond = 100

// afterBoot is a number of clock ticks as a time. A machine may be up for years.
func afterBoot(ticks int64) time.Duration {
	return time.Duration(ticks) * (time.Second / ticksPerSecond)
}

// status is a part of /proc/PID/stat.
type status struct {
	state  byte
	parent int
	start  int64 // clock ticks since boot
}

func (s status) dead() bool { return s.state == 'Z' || s.state == 'X' }

func stat(dir string) (s status, ok bool) {
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return s, false
	}
	// The name in parentheses may contain anything, also parentheses.
	field := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(field) < 20 {
		return s, false
	}
	s.state = field[0][0]
	s.parent, _ = strconv.Atoi(field[1])
	s.start, _ = strconv.ParseInt(field[19], 10, 64)
	return s, true
}

// owner is the effective user of a process; the directory in /proc belongs to
// root if the process may not be looked into.
func owner(dir string) int {
	text, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(text)) {
		if field := strings.Fields(line); len(field) > 2 && field[0] == "Uid:" {
			if uid, err := strconv.Atoi(field[2]); err == nil {
				return uid
			}
		}
	}
	return -1
}

// Is reports whether a descriptor, named by its path in /proc, is of the file
// of st.
func Is(descriptor string, st *unix.Stat_t) bool {
	var of unix.Stat_t
	return unix.Stat(descriptor, &of) == nil && of.Ino == st.Ino && of.Dev == st.Dev
}
