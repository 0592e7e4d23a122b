// Package procfs reads /proc (proc(5)).
package procfs

import (
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// Tick is the unit of times in /proc. USER_HZ is 100 a second on every architecture that Go runs on.
const Tick = 10 * time.Millisecond

// Stat is a part of /proc/PID/stat. It is zero for a process that does not exist.
type Stat struct {
	PID    int
	State  byte // the state of its first thread: R S D T Z ...
	Parent int
	Group  int
	Start  int64 // clock ticks since boot; it tells the process from a later one with the same PID

	threads int // the threads that have not ended; the first one counts also when it has ended
}

// Alive reports whether the process exists and is no zombie. A process whose first thread is a zombie
// lives as long as another thread runs.
func (s Stat) Alive() bool {
	return s.State != 0 && s.State != 'X' && (s.State != 'Z' || s.threads > 1)
}

// Stopped reports whether a signal or a debugger has stopped the process.
func (s Stat) Stopped() bool { return s.State == 'T' || s.State == 't' }

// IsGone reports whether an error of a file in /proc/PID says that the process does not exist, or
// that /proc hides it. Other errors, such as a lack of descriptors, say nothing about the process.
func IsGone(err error) bool { return err == unix.ENOENT || err == unix.ESRCH }

// ErrForeign says that the PIDs in /proc belong to another PID namespace.
var ErrForeign = errors.New("/proc is that of another PID namespace")

// Self reads the state of this process.
func Self() (Stat, error) {
	s, err := ReadStat(0)
	if err == nil && s.PID != unix.Getpid() {
		err = ErrForeign
	}
	return s, err
}

// ReadStat reads the state of a process. IsGone tells what an error means.
func ReadStat(pid int) (Stat, error) { return ReadStatAt(unix.AT_FDCWD, Dir(pid)+"/stat") }

// ReadStatAt reads /proc/PID/stat by a path relative to an open directory.
func ReadStatAt(directory int, path string) (Stat, error) {
	text, err := readAt(directory, path, 512)
	if err != nil {
		return Stat{}, err
	}
	return parseStat(text)
}

// Read reads a whole file, size bytes at a time. Unlike os.ReadFile it does not start Go's poller,
// which most runs do not need.
func Read(path string, size int) (string, error) { return readAt(unix.AT_FDCWD, path, size) }

func readAt(directory int, path string, size int) (string, error) {
	fd, err := eintr.Get(func() (int, error) {
		return unix.Openat(directory, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var all strings.Builder
	piece := make([]byte, size)
	for {
		n, err := eintr.Get(func() (int, error) { return unix.Read(fd, piece) })
		if n <= 0 || err != nil {
			return all.String(), err
		}
		all.Write(piece[:n])
	}
}

// usualProcesses is the number of processes per processor that can run on a machine that is busy, but not short of
// processors.
const usualProcesses = 4

// Slowdown returns how many times slower a process runs now than on a machine with usualProcesses for each processor:
// the number of processes that can run (proc_loadavg(5)), divided by what is usual for the processors that are online. It is
// at least 1. If one of the numbers is not known, it is 1.
//
// runtime.NumCPU does not serve here. It counts the processors that this process may use, which can be a few of
// many, but /proc/loadavg counts the processes of the whole machine.
func Slowdown() float64 {
	load, err := Read("/proc/loadavg", 128)
	if err != nil {
		return 1
	}
	online, err := Read("/sys/devices/system/cpu/online", 128)
	processors := rangesLength(online)
	if err != nil || processors == 0 {
		return 1
	}
	return max(1, float64(runnable(load))/float64(processors*usualProcesses))
}

// rangesLength returns how many numbers a list of ranges such as "0-3,8" has, or 0 if the text is no such list.
func rangesLength(text string) (length int) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		to, err := strconv.Atoi(last)
		if err != nil || to < from {
			return 0
		}
		length += to - from + 1
	}
	return length
}

// runnable returns the number of processes that can run, from the text of /proc/loadavg, or 0 if the text
// lacks it.
func runnable(text string) int {
	field := strings.Fields(text)
	if len(field) < 4 {
		return 0
	}
	count, _, _ := strings.Cut(field[3], "/")
	n, _ := strconv.Atoi(count)
	return n
}

// parseStat reads the text of /proc/PID/stat.
func parseStat(text string) (s Stat, err error) {
	pid, _, _ := strings.Cut(text, " ")
	// The name in parentheses may contain anything, also parentheses.
	field := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(field) < 20 {
		return Stat{}, errors.New("unexpected text in /proc/PID/stat")
	}
	s.PID, _ = strconv.Atoi(pid)
	s.State = field[0][0]
	s.Parent, _ = strconv.Atoi(field[1])
	s.Group, _ = strconv.Atoi(field[2])
	s.threads, _ = strconv.Atoi(field[17])
	s.Start, _ = strconv.ParseInt(field[19], 10, 64)
	return s, nil
}

// Dir returns the directory of a process. A pid of 0 means this process: its PID may be another one in
// the pid namespace of /proc.
func Dir(pid int) string {
	if pid == 0 {
		return "/proc/self"
	}
	return "/proc/" + strconv.Itoa(pid)
}

// PIDs returns all processes that this one may see.
func PIDs() []int {
	all, _ := numbers("/proc")
	return all
}

// FDs returns the open descriptors of a process.
func FDs(pid int) ([]int, error) { return numbers(Dir(pid) + "/fd") }

// numbers returns the entries of a directory that are numbers, in no order.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	found := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			found = append(found, n)
		}
	}
	return found, err
}

// Children returns the children of all threads of a process, zombies included. A child that starts
// or ends meanwhile may be missing. Kernels without CONFIG_PROC_CHILDREN give an error.
func Children(pid int) ([]int, error) {
	threads, err := numbers(Dir(pid) + "/task")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, thread := range threads {
		text, err := Read(Dir(pid)+"/task/"+strconv.Itoa(thread)+"/children", 512)
		if err != nil && thread == pid {
			return nil, err
		}
		for word := range strings.FieldsSeq(text) {
			child, _ := strconv.Atoi(word)
			found = append(found, child)
		}
	}
	return found, nil
}

// Ancestors returns the parent of a process, the parent of that one, and so on, the nearest first.
func Ancestors(pid int) (pids []int) {
	for {
		s, err := ReadStat(pid)
		if err != nil || s.Parent == 0 || slices.Contains(pids, s.Parent) {
			return pids
		}
		pid = s.Parent
		pids = append(pids, pid)
	}
}

// SeesAllAncestors reports whether all ancestors of this process are in its pid namespace.
func SeesAllAncestors() bool {
	const initial = 0xEFFFFFFC // the first pid namespace of every Linux (PROC_PID_INIT_INO)
	return Namespace("pid") == initial
}

// maxAncestors is more than any process has. It ends a walk that goes in a circle because PIDs are
// reused while it reads.
const maxAncestors = 10000

// IsAncestor reports whether a process is this one or an ancestor of this one. The answer is not
// known where /proc hides an ancestor (hidepid=) or belongs to another pid namespace.
func IsAncestor(pid int) (isAncestor, known bool) {
	process, err := Self()
	if err != nil {
		return false, false
	}
	for range maxAncestors {
		switch {
		case process.PID == pid:
			return true, true
		case process.Parent == 0: // the first process, or one that entered from another pid namespace
			return false, true
		}
		parent, err := ReadStat(process.Parent)
		if err != nil {
			// If the parent has just ended, the process has another parent now. If /proc hides the parent, the
			// process still has the same one.
			current, err := ReadStat(process.PID)
			if err != nil || current.Parent == process.Parent {
				return false, false
			}
			parent = current
		}
		process = parent
	}
	return false, false
}

// Command returns the command line of a process, or nil if it cannot be read or is empty.
func Command(pid int) []string {
	text, err := Read(Dir(pid)+"/cmdline", 4096)
	text = strings.TrimRight(text, "\x00") // a program that has set a title leaves many NULs
	if err != nil || text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// Status returns the value of a line of /proc/PID/status, or "" if there is no such line.
func Status(pid int, key string) string {
	text, _ := Read(Dir(pid)+"/status", 4096)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// EffectiveUID returns the effective user of a process, or -1 if it is not known. The owner of its
// directory in /proc would not do: that can be root.
func EffectiveUID(pid int) int {
	if field := strings.Fields(Status(pid, "Uid")); len(field) > 1 {
		if uid, err := strconv.Atoi(field[1]); err == nil {
			return uid
		}
	}
	return -1
}

// Namespace returns the inode of a namespace of this process ("pid", "time"), or 0 if it is not known.
func Namespace(kind string) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &st) != nil {
		return 0
	}
	return st.Ino
}

// BootTimeAhead returns how far CLOCK_BOOTTIME of this process is ahead of CLOCK_BOOTTIME in the
// initial time namespace (time_namespaces(7)).
func BootTimeAhead() (ahead time.Duration, known bool) {
	const initial = 0xEFFFFFFA // the first time namespace of every Linux (PROC_TIME_INIT_INO)
	namespace := Namespace("time")
	switch namespace {
	case initial:
		return 0, true
	case 0: // The kernel has no time namespaces, or there is no /proc.
		return 0, Namespace("pid") != 0
	case Namespace("time_for_children"): // timens_offsets belongs to the namespace of the children
		text, err := Read("/proc/self/timens_offsets", 128)
		if err == nil {
			return parseTimeOffsets(text)
		}
	}
	return 0, false
}

// parseTimeOffsets finds the offset of CLOCK_BOOTTIME. Linux 5.6 writes the number of the clock
// instead of its name.
func parseTimeOffsets(text string) (ahead time.Duration, known bool) {
	for line := range strings.Lines(text) {
		field := strings.Fields(line)
		if len(field) != 3 {
			continue
		}
		isBootTime := field[0] == "boottime" || field[0] == strconv.Itoa(unix.CLOCK_BOOTTIME)
		if !isBootTime {
			continue
		}
		seconds, err := strconv.ParseInt(field[1], 10, 64)
		nanoseconds, err2 := strconv.ParseInt(field[2], 10, 64)
		return time.Duration(seconds)*time.Second + time.Duration(nanoseconds), err == nil && err2 == nil
	}
	return 0, false
}

// BootID returns the kernel's random number of this boot, or zero if it is not known. Some containers
// mount a file with a number of their own in its place. That number does not count.
func BootID() (id [16]byte) {
	const path = "/proc/sys/kernel/random/boot_id"
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return id
	}
	text, _ := Read(path, 64)
	_, _ = hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(text), "-", "")))
	return id
}
