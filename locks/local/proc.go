package local

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidNamespace tells processes of different containers apart; 0 if it cannot
// be known.
func pidNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// bootID names the time since the machine was started: all zero where the
// kernel does not tell.
type bootID [16]byte

func thisBoot() (id bootID) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	_, _ = hex.Decode(id[:], []byte(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", "")))
	return id
}

// processState gives a process's state letter and its start, in clock ticks
// since boot (proc(5), fields 3 and 22). The state is 0 if there is none.
func processState(pid string) (state byte, start int64) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, 0
	}
	// The name in parentheses may contain anything, also parentheses.
	i := strings.LastIndexByte(string(text), ')')
	if i < 0 {
		return 0, 0
	}
	field := strings.Fields(string(text[i+1:]))
	if len(field) < 20 {
		return 0, 0
	}
	start, _ = strconv.ParseInt(field[19], 10, 64)
	return field[0][0], start
}

// ticksPerSecond is USER_HZ, 100 on every architecture that Go runs on.
const ticksPerSecond = 100

// alive reports whether the process that made the record is still there. A
// later process of the same number started after the record was made (/proc
// counts start times on CLOCK_BOOTTIME, the clock of joined). Where
// /proc hides the processes of others (hidepid=) only their being there is seen.
func (r *record) alive() bool {
	state, start := processState(strconv.Itoa(r.pid))
	if state == 0 {
		return unix.Kill(r.pid, 0) == unix.EPERM
	}
	return state != 'Z' && state != 'X' && start <= r.joined/(1e9/ticksPerSecond)
}
