// Package doctor examines what a host guarantees: what the kernel can do, and what /proc shows. It
// changes nothing.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
	"golock/internal/pidfd"
	"golock/locks"
)

// Examine examines this host, as far as the promises of a run depend on it. isLeased says that the store has
// leases.
func Examine(isLeased bool) locks.Findings {
	var found locks.Findings
	nameKernel(&found)
	examineProc(&found, "/proc")
	examinePidfd(&found)
	examineSubreaper(&found, isLeased)
	examineBuild(&found)
	examineContainer(&found, "/proc")
	return found
}

func nameKernel(found *locks.Findings) {
	var u unix.Utsname
	_ = unix.Uname(&u) // uname(2) cannot fail with a valid address
	found.OK("kernel", unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:])+" "+unix.ByteSliceToString(u.Machine[:]))
}

// examineProc examines whether /proc shows all processes.
func examineProc(found *locks.Findings, proc string) {
	_, readErr := os.ReadFile(proc + "/self/stat")
	m, _ := locks.MountOf(proc) // a mount that is not found has no options
	hidepid, _ := m.Option("hidepid")
	_, initErr := os.ReadFile(proc + "/1/stat") // root sees all processes, and so does a group that gid= names
	what := "is not mounted"
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		what = "cannot be read: " + readErr.Error()
	}
	found.Judge("/proc",
		locks.Row{
			When: readErr != nil, Level: locks.Problem,
			What: what,
			Why: "golock finds descendants there: --tree and the end of a lease miss processes that left the command's group, " +
				"and nobody notices that a held lock file was removed",
			Fix: "mount -t proc proc /proc",
		},
		locks.Row{
			When: hidepid == "" || hidepid == "0" || hidepid == "off", Level: locks.OK,
			What: "is mounted and shows all processes",
		},
		locks.Row{
			When: initErr == nil, Level: locks.OK,
			What: "is mounted with hidepid=" + hidepid + ", but shows this user all processes",
		},
		locks.Row{
			When: true, Level: locks.Note,
			What: "is mounted with hidepid=" + hidepid,
			Why: "processes of other users are hidden: golock cannot find a command of another user (sudo under golock); " +
				"ls of flock, fcntl and bind does not name them",
			Fix: "run golock as the user of its command, or mount /proc with gid= of a group of that user",
		},
	)
}

// examinePidfd examines the system calls that watch and signal a process without a race over its PID.
func examinePidfd(found *locks.Findings) {
	call, err := pidfd.Refused()
	found.Judge("pidfd",
		locks.Row{
			When: err != nil, Level: locks.Note,
			What: fmt.Sprintf("%s is refused: %v", call, err),
			Why: "golock sends signals by kill(2), after a look into /proc. golock acquire --for PID notices the end of the " +
				"process up to a second late",
			Fix: "Linux 5.3 or later, and a seccomp profile that allows pidfd_open and pidfd_send_signal",
		},
		locks.Row{When: true, Level: locks.OK, What: "the end of a process can be watched"},
	)
}

// examineSubreaper examines the calls of prctl(2) that a run on a store with leases needs, and --tree.
func examineSubreaper(found *locks.Findings, isLeased bool) {
	var value uintptr
	call := "PR_SET_CHILD_SUBREAPER"
	err := prctl(unix.PR_GET_CHILD_SUBREAPER, &value)
	if err == nil {
		call = "PR_SET_PDEATHSIG"
		err = prctl(unix.PR_GET_PDEATHSIG, &value)
	}
	refused := fmt.Sprintf("%s is refused: %v", call, err)
	const fix = "Linux 3.4 or later, and a seccomp profile that allows prctl"
	found.Judge("descendants",
		locks.Row{When: err == nil, Level: locks.OK, What: "golock adopts orphans, and children can die with it"},
		locks.Row{
			When: isLeased, Level: locks.Problem, What: refused,
			Why: "when golock is killed, what the command has started can outlive its lease", Fix: fix,
		},
		locks.Row{
			When: true, Level: locks.Note, What: refused,
			Why: "--tree does not see what left the command's process group", Fix: fix,
		},
	)
}

// prctl reads an attribute of this process.
func prctl(option int, value *uintptr) error {
	return unix.Prctl(option, uintptr(unsafe.Pointer(value)), 0, 0, 0)
}

// examineBuild examines whether this program knows which signals its caller blocked and ignored.
func examineBuild(found *locks.Findings) {
	_, isKnown := entry.Mask()
	found.Judge("signals",
		locks.Row{When: isKnown, Level: locks.OK, What: "what the caller ignores or blocks reaches the command unchanged"},
		locks.Row{
			When: true, Level: locks.Note,
			What: "this program was not made by make build or a package for amd64 or arm64",
			Why: "of the signals that the caller ignores, only HUP, INT and those of job control stay ignored in the command, " +
				"and a USR1 in the first milliseconds is lost",
			Fix: "make build, or a package",
		},
	)
}

// initialPIDs is the first PID namespace of every Linux (PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// examineContainer reports a PID namespace that is not the first one.
func examineContainer(found *locks.Findings, proc string) {
	namespace, err := os.Readlink(proc + "/self/ns/pid")
	found.Judge("container",
		locks.Row{
			When: err == nil && namespace != initialPIDs, Level: locks.Note,
			What: "this is a PID namespace of its own",
			Why: "runs inside and outside share a lock only through a directory mounted into both, or a networked store. " +
				"On a local store break and --replace running cannot signal across",
			Fix: "mount one directory into all and name it with --store local:///DIR, or use a networked store",
		},
	)
}
