package lockfile

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Examine implements locks.Store. It never takes the lock: a run with -n would find it
// taken.
func (s *Store) Examine(ctx context.Context, _ time.Duration) ([]locks.Finding, error) {
	var found locks.Findings
	dir := path.Dir(s.path)
	var st unix.Stat_t
	switch err := unix.Stat(s.path, &st); err {
	case nil:
		if err := s.checkKind(&st); err != nil {
			return nil, err
		}
		found.Append(s.access(&st))
	case unix.ENOENT:
		if _, err := os.Stat(dir); err != nil {
			return nil, &locks.PathError{Path: s.path, Err: err, Hint: "the directory must be there"}
		}
		if unix.Access(dir, unix.W_OK|unix.X_OK) != nil {
			return nil, &locks.PathError{Path: s.path, Err: unix.EACCES, Hint: "the file does not exist, and this user may not make it in " + dir}
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
	holders, waiters := 0, 0
	for e, err := range s.Entries(ctx, "") {
		switch {
		case err != nil:
		case e.State == locks.Holding:
			holders++
		default:
			waiters++
		}
	}
	found.OK("users", fmt.Sprintf("%d hold the lock now, %d wait, as far as this user may see", holders, waiters))
	found.Add(locks.Note, "order", "the kernel decides who is next", "readers that keep coming can starve a writer; a newcomer can slip in",
		"the store local, if no other tool has to share the lock")
	return found, nil
}

// access checks that this user may lock the existing file.
func (s *Store) access(st *unix.Stat_t) locks.Finding {
	need, word := uint32(unix.R_OK), "read"
	if s.family == Fcntl {
		need, word = unix.R_OK|unix.W_OK, "read and write"
	}
	f := locks.Finding{Level: locks.OK, Subject: "file", What: fmt.Sprintf("%s is there, mode %04o, of user %d", s.path, st.Mode&0o7777, st.Uid)}
	if err := unix.Access(s.path, need); err != nil {
		f.Level, f.What = locks.Problem, f.What+": this user may not "+word+" it"
		f.Why, f.Fix = "the lock cannot be taken", "chmod or chgrp "+s.path
	}
	return f
}

// supported locks an unnamed file in the same directory.
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

// cleaners warns of directories whose files are removed by age.
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
	case strings.HasPrefix(m.Type, "fuse"), m.Type == "cifs", m.Type == "smb3", m.Type == "9p":
		f.Level, f.Why = locks.Note, "golock does not know whether other machines see these locks"
		f.Fix = "a file on a local disk, or a networked store"
	}
	return f
}
