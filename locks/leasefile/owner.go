package leasefile

import (
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// owner is the process that an entry belongs to.
type owner struct {
	Host  string `json:"host"`
	Boot  string `json:"boot,omitempty"` // of which boot of which machine; "": not known
	PIDNS string `json:"pid_ns,omitempty"`
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"` // in clock ticks since that boot
}

func thisProcess() owner {
	o := owner{Boot: bootID(), PID: os.Getpid()}
	o.Host, _ = os.Hostname()
	o.PIDNS, _ = os.Readlink("/proc/self/ns/pid")
	_, o.Start = processState("self")
	return o
}

// bootID is a number that the kernel makes anew at every boot; "" if it does not
// tell.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// clockName names the clock that locks.BootTime reads: that of one boot in one
// time namespace (time_namespaces(7)). Instants of two names have nothing to do
// with each other. It is "" if that cannot be known.
func clockName() string {
	boot := bootID()
	if boot == "" {
		return ""
	}
	namespace, _ := os.Readlink("/proc/self/ns/time")
	h := fnv.New64a()
	h.Write([]byte(boot + " " + namespace))
	return strconv.FormatUint(h.Sum64(), 16)
}

// gone reports that the process has ended. It must be one whose number means
// something here; of all others nothing is known.
func (o owner) gone() bool {
	if o.Boot == "" || o.PIDNS == "" || o.Start == "" || o.Boot != bootID() || o.PID <= 0 {
		return false
	}
	if here, err := os.Readlink("/proc/self/ns/pid"); err != nil || here != o.PIDNS {
		return false
	}
	// /proc may hide the processes of others (hidepid=); kill(2) does not.
	if unix.Kill(o.PID, 0) == unix.ESRCH {
		return true
	}
	state, start := processState(strconv.Itoa(o.PID))
	return state == 'Z' || state == 'X' || (start != "" && start != o.Start)
}

// processState gives a process's state letter and its start (proc(5), fields 3
// and 22); 0 and "" if they cannot be read.
func processState(pid string) (state byte, start string) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, ""
	}
	// The name in parentheses may contain anything, also parentheses.
	field := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(field) < 20 {
		return 0, ""
	}
	return field[0][0], field[19]
}
