// Package doctor finds out what a host guarantees: what the kernel can do, and what
// /proc shows. It changes nothing.
package doctor

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
	"golock/locks"
)

// Examine looks at everything that the promises of a run depend on.
func Examine(leased bool) []locks.Finding {
	found := []locks.Finding{kernel(), procfs("/proc"), pidfds(), subreaper(leased), build()}
	if f, inside := container("/proc"); inside {
		found = append(found, f)
	}
	return found
}

func kernel() locks.Finding {
	var u unix.Utsname
	_ = unix.Uname(&u) // it cannot fail
	what := unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
	return locks.Finding{Level: locks.OK, Subject: "kernel", What: what}
}

// procfs finds out whether /proc shows all processes.
func procfs(proc string) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "/proc", What: "is mounted and shows all processes"}
	if _, err := os.ReadFile(proc + "/self/stat"); err != nil {
		f.Level, f.What = locks.Problem, "is not mounted: "+err.Error()
		f.Why = "golock finds descendants there: --tree and the end of a lease miss processes that left the command's group, and nobody notices that a held lock file was removed"
		f.Fix = "mount -t proc proc /proc"
		return f
	}
	m, _ := locks.MountOf(proc) // unknown: it has no options
	value, _ := m.Option("hidepid")
	_, hidden := os.ReadFile(proc + "/1/stat") // not from root, and a group may be let through
	switch {
	case value == "" || value == "0" || value == "off":
	case hidden == nil:
		f.What = "is mounted with hidepid=" + value + ", but shows this user all processes"
	default:
		f.Level, f.What = locks.Note, "is mounted with hidepid="+value
		f.Why = "processes of other users are hidden: golock cannot find a command of another user (sudo under golock); ls of flock, fcntl and bind does not name them"
		f.Fix = "run golock as the user of its command, or mount /proc with gid= of a group of that user"
	}
	return f
}

func pidfds() locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "pidfd", What: "the end of a process can be watched"}
	what := "pidfd_open"
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		defer unix.Close(fd)
		what, err = "pidfd_send_signal", unix.PidfdSendSignal(fd, 0, nil, 0)
	}
	if err == nil {
		return f
	}
	f.Level, f.What = locks.Problem, what+" is refused: "+err.Error()
	f.Why, f.Fix = "golock acquire --for PID, break and --replace need it", "Linux 5.3 or later, and a seccomp profile that allows pidfd_open and pidfd_send_signal"
	return f
}

// subreaper examines what a run on a leased store needs of prctl(2).
func subreaper(leased bool) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "descendants", What: "golock adopts orphans, and children can die with it"}
	var value uintptr
	what, err := "PR_SET_CHILD_SUBREAPER", prctl(unix.PR_GET_CHILD_SUBREAPER, &value)
	if err == nil {
		what, err = "PR_SET_PDEATHSIG", prctl(unix.PR_GET_PDEATHSIG, &value)
	}
	if err == nil {
		return f
	}
	f.What = what + " is refused: " + err.Error()
	f.Level, f.Why, f.Fix = locks.Note, "--tree does not see what left the command's process group", "Linux 3.4 or later, and a seccomp profile that allows prctl"
	if leased {
		f.Level, f.Why = locks.Problem, "when golock is killed, what the command has started can outlive its lease"
	}
	return f
}

// prctl reads one of the process's attributes.
func prctl(option int, value *uintptr) error {
	return unix.Prctl(option, uintptr(unsafe.Pointer(value)), 0, 0, 0)
}

// build says what this program knows of its caller's signals.
func build() locks.Finding {
	if _, known := entry.Mask(); known {
		return locks.Finding{Level: locks.OK, Subject: "signals", What: "what the caller ignores or blocks reaches the command so"}
	}
	return locks.Finding{
		Level: locks.Note, Subject: "signals", What: "this program was not made by make build or a package for amd64 or arm64",
		Why: "of what the caller ignores only HUP, INT and the signals of job control reach the command so, and a USR1 in the first milliseconds is lost",
		Fix: "make build, or a package",
	}
}

// initialPIDs is the first PID namespace, in every Linux (PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// container reports whether this is a PID namespace of its own.
func container(proc string) (f locks.Finding, inside bool) {
	at, err := os.Readlink(proc + "/self/ns/pid")
	if err != nil || at == initialPIDs {
		return f, false
	}
	return locks.Finding{
		Level: locks.Note, Subject: "container", What: "this is a PID namespace of its own",
		Why: "runs inside and outside share a lock only through a directory mounted into both, or a networked store. On a local store break and --replace running cannot signal across",
		Fix: "mount one directory into all and name it with --store local:///DIR, or use a networked store",
	}, true
}
