package files

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
)

// process identifies the process that an entry belongs to.
type process struct {
	Boot  string `json:"boot,omitempty"` // names the boot of a machine; empty if it is not known
	PIDNS string `json:"pid_ns,omitempty"`
	PID   int    `json:"pid"`
	Start string `json:"start,omitempty"` // when the process started, in clock ticks since that boot
}

func thisProcess() process {
	boot, _ := procfs.Read("/proc/sys/kernel/random/boot_id", 64)
	o := process{Boot: strings.TrimSpace(boot), PID: os.Getpid()}
	o.PIDNS, _ = os.Readlink("/proc/self/ns/pid")
	if self, err := procfs.Self(); err == nil {
		o.Start = strconv.FormatInt(self.Start, 10)
	}
	return o
}

// clockName names the clock of locks.BootTime: each boot and each time namespace has another one
// (time_namespaces(7)). Instants of two clocks must not be compared. A later namespace may have the
// same number, so the name contains how far the clock is ahead of the initial one. The name is empty if the boot
// or that distance is not known.
func (o process) clockName() string {
	ahead, known := procfs.BootTimeAhead()
	if o.Boot == "" || !known {
		return ""
	}
	name := fmt.Sprintf("%s-%d", o.Boot, procfs.Namespace("time"))
	if ahead != 0 {
		name += fmt.Sprintf("%+d", ahead)
	}
	return name
}

// hasEnded reports whether the process of a record has ended. In doubt it reports false: the process may
// be of another boot or PID namespace than this one, or /proc does not show this one. The start of a
// process can be compared only on the clock on which it was read.
func (s *Store) hasEnded(r *record) bool {
	o, self := r.Process, s.self()
	isKnown := o.Boot != "" && o.PIDNS != "" && o.Start != "" && o.PID > 0 && self.Start != ""
	if !isKnown || o.Boot != self.Boot || o.PIDNS != self.PIDNS {
		return false
	}
	// /proc may hide the processes of others (hidepid=); kill(2) does not.
	if unix.Kill(o.PID, 0) == unix.ESRCH {
		return true
	}
	p, err := procfs.ReadStat(o.PID)
	isLater := s.isSameClock(r) && strconv.FormatInt(p.Start, 10) != o.Start
	return err == nil && (!p.Alive() || isLater)
}

// isSameClock reports whether the instants in a record are of this process's clock.
func (s *Store) isSameClock(r *record) bool {
	return r.Clock != "" && r.Clock == s.clockName()
}
