package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// now is CLOCK_MONOTONIC in ms, the clock of the starter and of stamp.
func now() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return float64(t.Nano()) / 1e6
}

// statOf reads the state of a process and the fields after it; see proc(5).
func statOf(pid int) (state string, fields []string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", nil
	}
	// PID (NAME) STATE PARENT ...; the name may contain anything.
	fields = strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	return fields[0], fields[1:]
}

// childrenOf reads every process's parent: not every kernel has
// /proc/PID/task/TID/children.
func childrenOf(parent int) (children []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, fields := statOf(pid); fields != nil && fields[0] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

// blocked counts the requests that sleep on a lock of a file in dir: the lines
// with an arrow in /proc/locks. No two of them are alike, but a line may be read
// twice while the list changes.
func blocked(dir string) (int, error) {
	inodes := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, e.Name()), &st) == nil {
			inodes[strconv.FormatUint(st.Ino, 10)] = true
		}
	}
	data, err := os.ReadFile("/proc/locks")
	waiting := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		// 1: -> FLOCK  ADVISORY  WRITE 8711 fe:00:2362024 0 EOF
		f := strings.Fields(line)
		if len(f) > 6 && f[1] == "->" && inodes[f[6][strings.LastIndexByte(f[6], ':')+1:]] {
			waiting[strings.Join(f[2:], " ")] = true
		}
	}
	return len(waiting), err
}

// switchesOf counts the context switches of all threads of a process so far.
func switchesOf(pid int) (sum int64) {
	for _, task := range get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))) {
		status := readFields(task)
		sum += status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"]
	}
	return sum
}

// cpuOf is the CPU time in ms that a process and its children have used, those
// that it has waited for included.
func cpuOf(pid int) float64 {
	for {
		before, sum, lost := cpuOfReaped(pid), get(cpuClock(pid)), false
		for _, child := range childrenOf(pid) {
			cpu, err := cpuClock(child)
			sum, lost = sum+cpu, lost || err != nil
		}
		if !lost && before == cpuOfReaped(pid) { // no child has ended meanwhile
			return before + sum
		}
	}
}

// cpuClock is the CPU time in ms of a process; see clock_getcpuclockid(3).
func cpuClock(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of the whole process
	var t unix.Timespec
	err := unix.ClockGettime(^int32(pid)<<3|scheduled, &t)
	return float64(t.Nano()) / 1e6, err
}

// cpuOfReaped returns the CPU time of the children that a process has waited for, to 10 ms.
func cpuOfReaped(pid int) (sum float64) {
	_, fields := statOf(pid)
	if fields == nil {
		must(fmt.Errorf("process %d has ended while it was watched", pid))
	}
	for _, field := range fields[12:14] { // cutime, cstime
		sum += 10 * get(strconv.ParseFloat(field, 64))
	}
	return sum
}

// readFields reads the numbers of a file of "Key:  value [kB]" lines.
func readFields(path string) map[string]int64 {
	values := map[string]int64{}
	for line := range strings.Lines(string(get(os.ReadFile(path)))) {
		key, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				values[key] = n
			}
		}
	}
	return values
}
