package files

import (
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// owner is the process that an entry belongs to.
type owner struct {
	Boot  string `json:"boot,omitempty"` // of which boot of which machine; "": not known
	PIDNS string `json:"pid_ns,omitempty"`
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"` // in clock ticks since that boot
}

func thisProcess() owner {
	o := owner{Boot: bootID(), PID: os.Getpid()}
	o.PIDNS, _ = os.Readlink("/proc/self/ns/pid")
	if self, err := procfs.Self(); err == nil {
		o.Start = strconv.FormatInt(self.Start, 10)
	}
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
// something to self; of all others nothing is known.
func (o owner) gone(self owner) bool {
	if o.Boot == "" || o.PIDNS == "" || o.Start == "" || o.PID <= 0 || o.Boot != self.Boot || o.PIDNS != self.PIDNS {
		return false
	}
	// /proc may hide the processes of others (hidepid=); kill(2) does not.
	if unix.Kill(o.PID, 0) == unix.ESRCH {
		return true
	}
	p, err := procfs.ReadStat(o.PID)
	return err == nil && (!p.Alive() || strconv.FormatInt(p.Start, 10) != o.Start)
}
