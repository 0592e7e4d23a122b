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
	found.Append(s.supported(dir))
	found.Append(s.cleaners(dir))
	if m, err := locks.MountOf(dir); err == nil {
		found.Append(s.mount(m))
	}
	found.Add(locks.Note, "order", "the kernel decides who is next", "readers that keep coming can starve a writer; a newcomer can slip in",
		"the store local, if no other tool has to share the lock")
	return found, nil
}

// supported tests the file system: it locks an unnamed file in the same directory.
func (s *Store) supported(dir string) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "locks", What: string(s.family) + " locks work in " + dir}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		f.What = "not tried: no file without a name can be made in " + dir
		return f
	}
	defer unix.Close(fd)
	if err := s.setLock(fd, unix.F_WRLCK, false); err != nil {
		f.Level, f.What = locks.Problem, fmt.Sprintf("%s locks do not work in %s: %v", s.family, dir, err)
		f.Why, f.Fix = "nothing can be locked there", "a file on another file system"
	}
	return f
}

// cleaners warns of directories whose old files are removed.
func (s *Store) cleaners(dir string) locks.Finding {
	for _, place := range []string{"/tmp", "/var/tmp"} {
		if dir == place || strings.HasPrefix(dir, place+"/") {
			return locks.Finding{
				Level: locks.Note, Subject: "cleaners", What: "what lies in " + place + " is removed by age (systemd-tmpfiles, tmpreaper)",
				Why: "a lock file that is removed while it is held lets a second one in", Fix: "a file in /run or /run/lock",
			}
		}
	}
	return locks.Finding{Level: locks.OK, Subject: "cleaners", What: dir + " is no place that is cleaned by age"}
}

// shared has the types of file systems that other machines may use, except NFS and FUSE.
var shared = []string{"cifs", "smb3", "9p", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fakeowner"}

func (s *Store) mount(m locks.Mount) locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "file system", What: m.Type + ", mounted on " + m.Point}
	switch {
	case strings.HasPrefix(m.Type, "nfs"):
		f.Level = locks.Note
		f.Why = "the server keeps the locks: they can be lost with the connection, and flock and fcntl meet"
		if _, local := m.Option("local_lock"); local {
			f.Why += "; option local_lock: other machines may not see them at all"
		}
		f.Fix = "a networked store, which notices a loss"
	case strings.HasPrefix(m.Type, "fuse"), slices.Contains(shared, m.Type):
		f.Level, f.Why = locks.Note, "golock does not know whether other machines, the host of a virtual machine, or who uses "+
			"the directory behind a mirror (bindfs) see these locks"
		f.Fix = "a file on a local disk, or a networked store"
	}
	return f
}
