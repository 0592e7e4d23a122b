// Package machine finds out what a machine, and the place in it where golock
// runs, really gives: what the kernel can do, what /proc shows, how long a
// process is kept waiting. It changes nothing.
package machine

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Examine looks at everything that the promises of a run hang on. leased says
// that slots run out after ttl.
func Examine(leased bool, ttl time.Duration) []locks.Finding {
	found := []locks.Finding{kernel(), procfs("/proc"), pidfds(), subreaper(leased), limits()}
	if f, inside := container("/proc"); inside {
		found = append(found, f)
	}
	return append(found, stalls(Stalls(measured), leased, ttl))
}

// kernel names it.
func kernel() locks.Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return locks.Finding{Level: locks.Note, Subject: "kernel", What: "does not tell its version: " + err.Error()}
	}
	return locks.Finding{Level: locks.OK, Subject: "kernel", What: unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])}
}

// procfs finds out whether /proc is there, and whether it shows all processes.
func procfs(proc string) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "/proc", What: "is mounted and shows all processes"}
	if _, err := os.ReadFile(proc + "/self/stat"); err != nil {
		f.Level, f.What = locks.Problem, "is not mounted: "+err.Error()
		f.Why = "golock finds what a command has started there: --tree and the end of a lease miss processes that left the command's group, and a lock file that was removed under its holder goes unnoticed"
		f.Mend = "mount -t proc proc /proc"
		return f
	}
	m, err := locks.MountOf(proc)
	if err != nil {
		return f
	}
	value, _ := m.Option("hidepid")
	_, hidden := os.ReadFile(proc + "/1/stat") // not from root, and a group may be let through
	switch {
	case value == "" || value == "0" || value == "off":
	case hidden == nil:
		f.What = "is mounted with hidepid=" + value + ", but shows this user all processes"
	default:
		f.Level, f.What = locks.Note, "is mounted with hidepid="+value
		f.Why = "processes of other users are not seen: a run as another user than its command (sudo under golock) cannot find them; ls of flock, fcntl and bind does not name them"
		f.Mend = "run golock as the user of its command, or mount /proc with gid= of a group that golock's user is in"
	}
	return f
}

func pidfds() locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "pidfd", What: "the end of a process can be watched"}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		unix.Close(fd)
		return f
	}
	f.Level, f.What = locks.Problem, "cannot be opened: "+err.Error()
	f.Why, f.Mend = "golock acquire --for PID, break and --replace need it", "Linux 5.3 or later, and a seccomp profile that allows pidfd_open"
	return f
}

// subreaper asks for two things that a run on a leased store cannot do without.
func subreaper(leased bool) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "descendants", What: "orphans come to golock, and children can be told to die with it"}
	var flag, sig uintptr
	err := prctl(unix.PR_GET_CHILD_SUBREAPER, &flag)
	what := "PR_SET_CHILD_SUBREAPER"
	if err == nil {
		err, what = prctl(unix.PR_GET_PDEATHSIG, &sig), "PR_SET_PDEATHSIG"
	}
	if err == nil {
		return f
	}
	f.What = what + " is not to be had: " + err.Error()
	f.Level, f.Why, f.Mend = locks.Note, "--tree does not see what left the command's process group", "Linux 3.4 or later, and a seccomp profile that allows prctl"
	if leased {
		f.Level, f.Why = locks.Problem, "when golock is killed, what the command has started can outlive its lease"
	}
	return f
}

// limits are those that a golock, and its command under it, can run into.
func limits() locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "limits", What: "leave room"}
	var tight []string
	for _, l := range []struct {
		name     string
		resource int
		least    uint64
	}{{"open files (ulimit -n)", unix.RLIMIT_NOFILE, 64}, {"processes and threads (ulimit -u)", unix.RLIMIT_NPROC, 64}, {"address space in bytes (ulimit -v)", unix.RLIMIT_AS, 1 << 30}} {
		var r unix.Rlimit
		if unix.Getrlimit(l.resource, &r) == nil && r.Cur < l.least {
			tight = append(tight, fmt.Sprintf("%s %d", l.name, r.Cur))
		}
	}
	if len(tight) > 0 {
		f.Level, f.What = locks.Note, "are tight: "+strings.Join(tight, ", ")
		f.Why, f.Mend = "golock, or the command under it, can fail at its start", "raise them where golock is started"
	}
	return f
}

// initialPIDs is the number of the machine's first PID namespace, the same in
// every Linux (PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// container says whether this is one: a place with process numbers of its own.
func container(proc string) (f locks.Finding, inside bool) {
	at, err := os.Readlink(proc + "/self/ns/pid")
	if err != nil || at == initialPIDs {
		return f, false
	}
	return locks.Finding{
		Level: locks.Note, Subject: "container", What: "processes have numbers of their own here (a PID namespace)",
		Why:  "runs outside meet those here only in a place that both see: a directory that is mounted into both, or a networked store. break, and --replace running, cannot signal across on a local store",
		Mend: "mount one directory into all and name it with --store local:///DIR, or use a networked store",
	}, true
}

// measured is for how long stalls are looked for.
const measured = 500 * time.Millisecond

// Stalls measures how much later than it should this process is woken, for a
// while. The longest comes last.
func Stalls(span time.Duration) []time.Duration {
	const nap = time.Millisecond
	var late []time.Duration
	for end := locks.BootTime().Add(span); ; {
		before := locks.BootTime()
		if before >= end {
			break
		}
		time.Sleep(nap)
		late = append(late, max(locks.BootTime().Sub(before)-nap, 0))
	}
	slices.Sort(late)
	return late
}

// stalls judges them. From the stop signal to the deadline golock has a sixth
// of the TTL at most.
func stalls(late []time.Duration, leased bool, ttl time.Duration) locks.Finding {
	worst := late[len(late)-1]
	f := locks.Finding{Level: locks.OK, Subject: "stalls", What: fmt.Sprintf("in %v golock was kept waiting for %v at most", measured, worst.Round(10*time.Microsecond))}
	if !leased {
		return f
	}
	f.What += fmt.Sprintf(", with a TTL of %v", ttl)
	switch {
	case worst > ttl/6:
		f.Level, f.Why = locks.Problem, "commands may be stopped too late, or leases run out, while the machine keeps golock waiting"
		f.Mend = fmt.Sprintf("--ttl of at least %v, or less load on this machine", (12*worst).Round(time.Second)+time.Second)
	case worst > ttl/30:
		f.Level, f.Why = locks.Note, "leases have less room for a bad moment of network or server"
		f.Mend = "a longer --ttl, or less load on this machine"
	}
	return f
}
