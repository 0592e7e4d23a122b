package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// Examine implements locks.Store. It makes no directory.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil {
		return nil, err
	}
	defer d.close()
	x := &examination{store: s, opened: d}
	x.directory()
	x.fileSystem()
	x.mounts("/proc", append([]int{1}, procfs.Ancestors(0)...))
	if d.exists {
		x.mode()
		x.users()
		x.rehearse(ctx, ttl)
	}
	return x.found, nil
}

// examination collects findings.
type examination struct {
	store  *Store
	opened *directory
	found  []locks.Finding
}

func (x *examination) add(f locks.Finding) { x.found = append(x.found, f) }

// directory says which directory it is, and why.
func (x *examination) directory() {
	f := locks.Finding{Level: locks.OK, Subject: "directory", What: x.opened.path + ", as the URL says"}
	if x.store.path == "" {
		f.What = x.opened.path + ", this user's default. Another user has /run/golock/UID, /run/lock/golock-UID or /tmp/golock-UID: for runs of several users name a directory that all may write, --store local:///DIR"
	}
	if !x.opened.exists {
		f.What += "; it does not exist yet"
		if parent := path.Dir(x.opened.path); unix.Access(parent, unix.W_OK|unix.X_OK) != nil && !(x.store.path == "" && x.store.roots.euid == 0) {
			f.Level, f.Why = locks.Problem, "golock makes its last part, and may not write "+parent
			f.Fix = "mkdir " + x.opened.path + " for this user"
		} else {
			f.What += ", the first run makes it"
		}
	}
	x.add(f)
}

// nearestExisting is the directory, or the one above it that exists.
func (x *examination) nearestExisting() string {
	at := x.opened.path
	for at != "/" {
		if _, err := os.Stat(at); err == nil {
			break
		}
		at = path.Dir(at)
	}
	return at
}

// fileSystem names the file system. openDirectory has refused those that it knows to be
// another machine's.
func (x *examination) fileSystem() {
	m, err := locks.MountOf(x.nearestExisting())
	if err != nil {
		x.add(locks.Finding{Level: locks.Note, Subject: "file system", What: "cannot be found out: " + err.Error(), Why: "locks on a network file system could exclude nobody else"})
		return
	}
	f := locks.Finding{Level: locks.OK, Subject: "file system", What: m.Type + ", mounted on " + m.Point}
	if strings.HasPrefix(m.Type, "fuse") && m.Type != "fuseblk" {
		f.Level, f.Why = locks.Note, "golock does not know whether this one has locks of its own that others do not see"
		f.Fix = "take a directory on a local disk, if other machines mount it too"
	}
	x.add(f)
}

// mounts finds out whether other processes, process 1 and the ancestors, see the same
// directory.
func (x *examination) mounts(proc string, pids []int) {
	own, err := os.Readlink(proc + "/self/ns/mnt")
	if err != nil {
		return // the machine's findings say that there is no /proc
	}
	at := x.nearestExisting()
	f := locks.Finding{Level: locks.OK, Subject: "mounts"}
	sameNamespace, sameDirectory := false, false
	for _, pid := range pids {
		dir := proc + "/" + strconv.Itoa(pid)
		theirs, err := os.Readlink(dir + "/ns/mnt")
		switch {
		case err != nil:
			continue
		case theirs == own:
			sameNamespace = true
			continue
		}
		if sameFile(at, dir+"/root"+at) {
			sameDirectory = true
			continue
		}
		f.Level, f.What = locks.Problem, at+" is private: this process has mounts of its own (a service with PrivateTmp=, a container, unshare -m), and process "+strconv.Itoa(pid)+" sees another directory there"
		f.Why = "runs elsewhere on this machine have other locks: both would run"
		f.Fix = "have /run/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), or name a directory that all of them see with --store local:///DIR"
		x.add(f)
		return
	}
	switch {
	case sameDirectory:
		f.What = "this process has mounts of its own (a namespace), but " + at + " is the same as outside"
	case sameNamespace:
		f.What = "nothing points to a private " + at
	default:
		f.What = "other processes cannot be looked at; nothing points to a private " + at
	}
	x.add(f)
}

func sameFile(a, b string) bool {
	var one, two unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &two) == nil && kernel.SameFile(&one, &two)
}

func (x *examination) mode() {
	if x.store.path == "" {
		x.add(locks.Finding{Level: locks.OK, Subject: "mode", What: fmt.Sprintf("%04o, only this user may write", x.opened.stat.Mode&0o7777)})
		return
	}
	f := locks.Finding{Level: locks.OK, Subject: "mode", What: fmt.Sprintf("%04o", x.opened.stat.Mode&0o7777)}
	if x.opened.stat.Mode&0o022 != 0 {
		f.Level, f.Why = locks.Note, "other users may make, and keep, locks here: that is how several share a directory, and all of them are trusted"
		f.Fix = "chmod 700 if only one user is meant"
		if x.opened.stat.Mode&unix.S_ISVTX == 0 {
			f.What += ", without the sticky bit"
			f.Why += "; each can remove the others' lock files (golock notices that as long as /proc is there)"
			f.Fix = "chmod +t, or chmod 700 if only one user is meant"
		}
	}
	x.add(f)
	if owner := x.opened.stat.Uid; owner != 0 && owner != uint32(x.store.roots.euid) {
		x.add(locks.Finding{
			Level: locks.Note, Subject: "owner", What: fmt.Sprintf("the directory belongs to user %d", owner),
			Why: "who owns it can remove and replace what everybody has in it, and lead its path to another place",
			Fix: "a directory of root's with the sticky bit (mkdir -m 1777), if that user is not trusted",
		})
	}
}

// users counts the lock files by their users.
func (x *examination) users() {
	files, err := x.opened.lockFiles(isLockFile)
	if err != nil {
		x.add(locks.Finding{Level: locks.Problem, Subject: "directory", What: "cannot be listed: " + err.Error(), Why: "golock ls and golock clean do not work"})
		return
	}
	byUser := map[uint32]int{}
	for _, base := range files {
		var st unix.Stat_t
		if unix.Fstatat(x.opened.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Uid != uint32(x.store.roots.euid) {
			byUser[st.Uid]++
		}
	}
	f := locks.Finding{Level: locks.OK, Subject: "users", What: fmt.Sprintf("%d lock files", len(files))}
	for _, uid := range slices.Sorted(maps.Keys(byUser)) {
		f.What += fmt.Sprintf(", %d of user %d", byUser[uid], uid)
	}
	x.add(f)
}

// rehearse does what a run does, and removes the lock file.
func (x *examination) rehearse(ctx context.Context, ttl time.Duration) {
	bound, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := New(x.opened.path)
	s.roots = x.store.roots
	defer s.Close()
	r := locks.Rehearse(bound, s)
	f := r.Finding(ttl)
	if f.Level == locks.OK {
		f.What += ", with open file description locks"
	}
	x.add(f)
	if _, err := x.opened.sweep(context.WithoutCancel(ctx), fileName(r.Name), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.add(locks.Finding{Level: locks.Note, Subject: "rehearsal", What: "its lock file could not be removed: " + err.Error(), Fix: "golock clean"})
	}
}
