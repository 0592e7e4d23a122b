package lockfile

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Examine implements locks.Store. It never takes the lock, because a run with -n would find it
// taken.
func (s *Store) Examine(context.Context, time.Duration) ([]locks.Finding, error) {
	var found locks.Findings
	dir, need := path.Dir(s.path), uint32(unix.R_OK)
	if s.family == Fcntl {
		need |= unix.W_OK
	}
	var st unix.Stat_t
	err := unix.Stat(s.path, &st)
	switch err {
	case nil:
		if err := s.checkKind(&st); err != nil {
			return nil, err
		}
		if err := unix.Access(s.path, need); err != nil {
			return nil, s.openError(err)
		}
		found.OK("file", fmt.Sprintf("%s is there, mode %04o, of user %d", s.path, st.Mode&0o7777, st.Uid))
	case unix.ENOENT:
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return nil, s.openError(err)
		}
		found.OK("file", s.path+" does not exist yet, the first run makes it")
	default:
		return nil, s.openError(err)
	}
	s.examineSupport(&found, dir)
	examineCleaners(&found, dir)
	if m, err := locks.MountOf(dir); err == nil {
		examineMount(&found, m)
	}
	found.Add(locks.Note, "order", "the kernel decides who is next", "a steady stream of readers can starve a writer; a new run can go before a waiter",
		"the store local, if no other tool shares the lock")
	return found, nil
}

// examineSupport tests the file system: it locks an unnamed file in the same directory.
func (s *Store) examineSupport(found *locks.Findings, dir string) {
	fd, openErr := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	var lockErr error
	if openErr == nil {
		lockErr = s.setLock(fd, unix.F_WRLCK, doNotWait)
		unix.Close(fd)
	}
	found.Judge("locks",
		locks.Row{
			When: openErr != nil, Level: locks.OK,
			What: "not tried: no file without a name can be made in " + dir,
		},
		locks.Row{
			When: lockErr != nil, Level: locks.Problem,
			What: fmt.Sprintf("%s locks do not work in %s: %v", s.family, dir, lockErr),
			Why:  "nothing can be locked there",
			Fix:  "a file on another file system",
		},
		locks.Row{When: true, Level: locks.OK, What: string(s.family) + " locks work in " + dir},
	)
}

// examineCleaners warns of directories in which programs remove old files.
func examineCleaners(found *locks.Findings, dir string) {
	cleanedParent := ""
	for _, cleaned := range []string{"/tmp", "/var/tmp"} {
		if dir == cleaned || strings.HasPrefix(dir, cleaned+"/") {
			cleanedParent = cleaned
		}
	}
	found.Judge("cleaners",
		locks.Row{
			When: cleanedParent != "", Level: locks.Note,
			What: "what lies in " + cleanedParent + " is removed by age (systemd-tmpfiles, tmpreaper)",
			Why:  "if a lock file is removed while it is held, a second run can start",
			Fix:  "a file in /run or /run/lock",
		},
		locks.Row{When: true, Level: locks.OK, What: dir + " is not cleaned by age"},
	)
}

// sharedTypes are the types of file systems that other machines may use, except NFS and FUSE.
var sharedTypes = []string{"cifs", "smb3", "9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner"}

// examineMount examines who else may use the file system.
func examineMount(found *locks.Findings, m locks.Mount) {
	what := m.Type + ", mounted on " + m.Point
	isNFS := strings.HasPrefix(m.Type, "nfs")
	_, isLocal := m.Option("local_lock")
	const ofServer = "the server keeps the locks: they can be lost with the connection, and flock and fcntl meet"
	const fixNFS = "a networked store, which notices a loss"
	found.Judge("file system",
		locks.Row{
			When: isNFS && isLocal, Level: locks.Note, What: what,
			Why: ofServer + "; option local_lock: other machines may not see them at all", Fix: fixNFS,
		},
		locks.Row{When: isNFS, Level: locks.Note, What: what, Why: ofServer, Fix: fixNFS},
		locks.Row{
			When:  strings.HasPrefix(m.Type, "fuse") || slices.Contains(sharedTypes, m.Type),
			Level: locks.Note, What: what,
			Why: "golock does not know whether other machines, the host of a virtual machine, or who uses " +
				"the directory behind a mirror (bindfs) see these locks",
			Fix: "a file on a local disk, or a networked store",
		},
		locks.Row{When: true, Level: locks.OK, What: what},
	)
}
