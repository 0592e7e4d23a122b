package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// blocked counts the requests that the kernel has put to sleep on a lock of
// any file in l's directory: the lines with an arrow in /proc/locks. A waiter
// of flock, setlock or golock is one such line from the moment it sleeps, and
// no two of these lines are alike: flock's name the process, golock's the byte.
// (Those of golock's store fcntl are all alike and all counted.)
// The file is longer than what one read(2) gives, so that a line may come twice
// when the list changes in between.
func blocked(l lock) (int, error) {
	inodes := map[string]bool{}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(l.dir, e.Name()), &st) == nil {
			inodes[strconv.FormatUint(st.Ino, 10)] = true
		}
	}
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	waiting := map[string]bool{}
	for line := range bytes.Lines(data) {
		// 1: -> FLOCK  ADVISORY  WRITE 8711 fe:00:2362024 0 EOF
		f := strings.Fields(string(line))
		if len(f) < 7 || f[1] != "->" {
			continue
		}
		if inodes[f[6][strings.LastIndexByte(f[6], ':')+1:]] {
			key := strings.Join(f[2:], " ")
			if f[2] == "OFDLCK" && strings.HasSuffix(key, " 0 EOF") { // of the store fcntl: one is like the other
				key += strconv.Itoa(len(waiting))
			}
			waiting[key] = true
		}
	}
	return len(waiting), nil
}

// sleepsBetweenPolls tells whether a tool that polls is in one of its pauses: its
// first thread sleeps for a time, or any of them waits for signals until a time.
func sleepsBetweenPolls(pid int) (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || tasks == nil {
		return false, fmt.Errorf("process %d has ended while it was watched", pid)
	}
	timed := false
	for _, task := range tasks {
		data, err := os.ReadFile(filepath.Join(task, "wchan"))
		if err != nil {
			continue // this thread has ended
		}
		where := string(data)
		timed = timed || strings.HasPrefix(where, "poll_schedule_timeout") || strings.HasPrefix(where, "do_select") ||
			(filepath.Base(task) == strconv.Itoa(pid) && strings.HasPrefix(where, "hrtimer_nanosleep"))
	}
	return timed && len(childrenOf(pid)) == 0, nil
}

// childrenOf reads every process' parent. Not every kernel has the short cut
// /proc/PID/task/TID/children.
func childrenOf(parent int) []int {
	var children []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// PID (NAME) STATE PARENT ...; the name may contain anything.
		f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// tree is a process and all its descendants, parents first.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, childrenOf(pids[i])...)
	}
	return pids
}

// activity of a process since it was started, all its threads together.
type activity struct {
	switches int64   // context switches, voluntary and not: how often it was woken
	cpu      float64 // µs
	threads  int
}

func (a activity) since(before activity) activity {
	return activity{a.switches - before.switches, a.cpu - before.cpu, a.threads}
}

func (a *activity) add(other activity) {
	a.switches += other.switches
	a.cpu += other.cpu
	a.threads += other.threads
}

func activityOf(pids ...int) (activity, error) {
	var sum activity
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || tasks == nil {
			return sum, fmt.Errorf("process %d has ended while it was watched", pid)
		}
		for _, task := range tasks {
			data, err := os.ReadFile(filepath.Join(task, "schedstat"))
			if err != nil {
				return sum, err
			}
			// time on a CPU, time in the run queue, time slices
			ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
			if err != nil {
				return sum, err
			}
			status, err := keyed(filepath.Join(task, "status"))
			if err != nil {
				return sum, err
			}
			sum.add(activity{
				switches: status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"],
				cpu:      float64(ns) / 1e3,
				threads:  1,
			})
		}
	}
	return sum, nil
}

// cpuOfOne is the CPU time in ms that one process has used, and those children
// that it has waited for.
func cpuOfOne(pid int) (float64, error) {
	reaped, err := cpuOfReaped(pid)
	if err != nil {
		return 0, err
	}
	own, err := cpuClock(pid)
	return own + reaped, err
}

// cpuClock is the CPU time in ms of a process; see clock_getcpuclockid(3).
func cpuClock(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of the whole process
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|scheduled, &t); err != nil {
		return 0, fmt.Errorf("clock of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e6, nil
}

// cpuOf is the CPU time in ms that a process and its children have used since
// they were started, those that it has waited for included.
func cpuOf(pid int) (float64, error) {
	for {
		before, err := cpuOfReaped(pid)
		if err != nil {
			return 0, err
		}
		sum, lost := before, false
		for _, p := range append(childrenOf(pid), pid) {
			cpu, err := cpuClock(p)
			if err != nil && p == pid {
				return 0, err
			}
			lost = lost || err != nil
			sum += cpu
		}
		if after, err := cpuOfReaped(pid); err != nil || (after == before && !lost) {
			return sum, err
		}
	}
}

// cpuOfReaped is that of the children that it has waited for, to 10 ms.
func cpuOfReaped(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// PID (NAME) and 14 more are before cutime and cstime; see proc(5).
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	sum := 0.0
	for _, field := range f[13:15] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks * 10
	}
	return sum, nil
}

// footprint of one process, in KiB.
type footprint struct{ rss, pss, private float64 }

func footprintOf(pid int) (footprint, error) {
	m, err := keyed(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	return footprint{
		rss: float64(m["Rss"]), pss: float64(m["Pss"]), private: float64(m["Private_Clean"] + m["Private_Dirty"]),
	}, err
}

// keyed reads the numbers of a file of "Key:  value [kB]" lines.
func keyed(path string) (map[string]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		key, rest, found := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !found || len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
			values[key] = n
		}
	}
	return values, nil
}
