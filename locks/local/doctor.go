package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

var _ locks.Examiner = (*Store)(nil)

// Examine implements locks.Examiner. A directory that does not exist is not
// made.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	d, err := openDirectory(s.path, s.roots, false)
	if err != nil {
		return nil, err
	}
	if d.fd >= 0 {
		defer unix.Close(d.fd)
	}
	x := &examination{store: s, dir: d}
	x.where()
	x.fileSystem()
	x.view("/proc")
	if !d.readOnly {
		x.mode()
		x.users()
		x.rehearse(ctx, ttl)
	}
	return x.found, nil
}

// examination collects findings.
type examination struct {
	store *Store
	dir   *directory
	found []locks.Finding
}

func (x *examination) add(f locks.Finding) { x.found = append(x.found, f) }

// where says which directory it is, and why.
func (x *examination) where() {
	f := locks.Finding{Level: locks.OK, Subject: "directory", What: x.dir.path + ", as the URL says"}
	if x.store.path == "" {
		f.What = x.dir.path + ", the default: of /run/golock/UID, /run/lock/golock-UID and /tmp/golock-UID the first that exists, else the first that can be made"
		f.Why = "other users have other directories: runs of two users do not limit each other here"
		f.Mend = "for several users: one directory that all may write, --store local:///DIR"
	}
	if x.dir.readOnly {
		f.What += "; it does not exist yet"
		if parent := path.Dir(x.dir.path); unix.Access(parent, unix.W_OK|unix.X_OK) != nil && !(x.store.path == "" && x.store.roots.euid == 0) {
			f.Level, f.Why = locks.Problem, "golock makes its last part, and may not write "+parent
			f.Mend = "mkdir " + x.dir.path + " for this user"
		} else {
			f.What += ", the first run makes it"
		}
	}
	x.add(f)
}

// nearest is the directory, or the one above it that exists.
func (x *examination) nearest() string {
	at := x.dir.path
	for at != "/" {
		if _, err := os.Stat(at); err == nil {
			break
		}
		at = path.Dir(at)
	}
	return at
}

// fileSystem names the file system. One of another machine's is refused before.
func (x *examination) fileSystem() {
	m, err := locks.MountOf(x.nearest())
	if err != nil {
		x.add(locks.Finding{Level: locks.Note, Subject: "file system", What: "cannot be found out: " + err.Error(), Why: "locks on a network file system could exclude nobody else"})
		return
	}
	f := locks.Finding{Level: locks.OK, Subject: "file system", What: m.Type + ", mounted on " + m.Point}
	if strings.HasPrefix(m.Type, "fuse") && m.Type != "fuseblk" {
		f.Level, f.Why = locks.Note, "golock does not know whether this one has locks of its own that others do not see"
		f.Mend = "take a directory on a local disk, if other machines mount it too"
	}
	x.add(f)
}

// view finds out whether this process sees the directory that others see. It
// compares with process 1 and with its own ancestors, as far as it may.
func (x *examination) view(proc string) {
	own, err := os.Readlink(proc + "/self/ns/mnt")
	if err != nil {
		return // the machine's findings say that there is no /proc
	}
	at := x.nearest()
	f := locks.Finding{Level: locks.OK, Subject: "mounts"}
	alike, apart := false, false
	for _, pid := range append([]string{"1"}, ancestors(proc)...) {
		theirs, err := os.Readlink(proc + "/" + pid + "/ns/mnt")
		switch {
		case err != nil:
			continue
		case theirs == own:
			alike = true
			continue
		}
		if sameFile(at, proc+"/"+pid+"/root"+at) {
			apart = true
			continue
		}
		f.Level, f.What = locks.Problem, at+" is private: this process has mounts of its own (a service with PrivateTmp=, a container, unshare -m), and process "+pid+" sees another directory there"
		f.Why = "runs elsewhere on this machine have other locks: both would run"
		f.Mend = "have /run/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), or name a directory that all of them see with --store local:///DIR"
		x.add(f)
		return
	}
	switch {
	case apart:
		f.What = "this process has mounts of its own (a namespace), but " + at + " is the same as outside"
	case alike:
		f.What = "nothing points to a private " + at
	default:
		f.What = "other processes cannot be looked at; nothing points to a private " + at
	}
	x.add(f)
}

func sameFile(a, b string) bool {
	var one, two unix.Stat_t
	return unix.Stat(a, &one) == nil && unix.Stat(b, &two) == nil && one.Dev == two.Dev && one.Ino == two.Ino
}

// ancestors are the processes around this one, the nearest first.
func ancestors(proc string) (pids []string) {
	for pid := "self"; len(pids) < 1000; {
		text, err := os.ReadFile(proc + "/" + pid + "/stat")
		if err != nil {
			break
		}
		_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		field := strings.Fields(after) // state, parent, ...
		if len(field) < 2 || field[1] == "0" {
			break
		}
		pid = field[1]
		pids = append(pids, pid)
	}
	return pids
}

func (x *examination) mode() {
	if x.store.path == "" {
		x.add(locks.Finding{Level: locks.OK, Subject: "mode", What: fmt.Sprintf("%04o, only this user may write", x.dir.mode&0o7777)})
		return
	}
	f := locks.Finding{Level: locks.OK, Subject: "mode", What: fmt.Sprintf("%04o", x.dir.mode&0o7777)}
	if x.dir.mode&0o022 != 0 {
		f.Level, f.Why = locks.Note, "other users may make, and keep, locks here: that is how several share a directory, and all of them are trusted"
		f.Mend = "chmod 700 if only one user is meant"
		if x.dir.mode&unix.S_ISVTX == 0 {
			f.What += ", without the sticky bit"
			f.Why += "; each can remove the others' lock files (golock notices that as long as /proc is there)"
			f.Mend = "chmod +t, or chmod 700 if only one user is meant"
		}
	}
	x.add(f)
	if owner := x.dir.owner; owner != 0 && owner != uint32(x.store.roots.euid) {
		x.add(locks.Finding{
			Level: locks.Note, Subject: "owner", What: fmt.Sprintf("the directory belongs to user %d", owner),
			Why:  "who owns it can remove and replace what everybody has in it, and lead its path to another place",
			Mend: "a directory of root's with the sticky bit (mkdir -m 1777), if that user is not trusted",
		})
	}
}

// users looks at what is there already.
func (x *examination) users() {
	files, err := os.ReadDir(x.dir.path)
	if err != nil {
		x.add(locks.Finding{Level: locks.Problem, Subject: "directory", What: "cannot be listed: " + err.Error(), Why: "golock ls and golock clean do not work"})
		return
	}
	byUser := map[uint32]int{}
	var strange []string
	count := 0
	for _, file := range files {
		if !isLockFile(file.Name()) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(x.dir.fd, file.Name(), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		count++
		byUser[st.Uid]++
		if found := x.strange(file.Name()); found != "" {
			strange = append(strange, file.Name()+" ("+found+")")
		}
	}
	f := locks.Finding{Level: locks.OK, Subject: "users", What: fmt.Sprintf("%d lock files", count)}
	var who []string
	for uid, n := range byUser {
		if uid != uint32(x.store.roots.euid) {
			who = append(who, fmt.Sprintf("%d of user %d", n, uid))
		}
	}
	slices.Sort(who)
	if len(who) > 0 {
		f.What += ", " + strings.Join(who, ", ")
	}
	x.add(f)
	if len(strange) > 0 {
		if len(strange) > 5 {
			strange = append(strange[:5], fmt.Sprintf("and %d more", len(strange)-5))
		}
		x.add(locks.Finding{
			Level: locks.Note, Subject: "files", What: "not of this version: " + strings.Join(strange, ", "), Why: "runs of these names are refused",
			Mend: "the same version of golock everywhere; or remove them when no run of their names is left",
		})
	}
}

// strange says what keeps a lock file from being used, if something does.
func (x *examination) strange(base string) string {
	f, err := x.dir.open(base, unix.O_RDONLY)
	if err != nil || f == nil {
		if errors.Is(err, unix.EACCES) || err == nil {
			return ""
		}
		return err.Error()
	}
	defer f.close()
	b := make([]byte, pageSize)
	n, err := f.readAt(b, 0)
	if err != nil {
		return err.Error()
	}
	_, err = decodeHeader(b[:n])
	var other *formatError
	switch {
	case errors.As(err, &other):
		return "format " + strconv.Itoa(int(other.found))
	case err == errCorrupt && string(b[:min(n, len(magic))]) != magic:
		return "not golock's"
	}
	return "" // a damaged one is written anew
}

// rehearse does what a run does, and removes the lock file.
func (x *examination) rehearse(ctx context.Context, ttl time.Duration) {
	bound, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s := New(x.dir.path)
	s.roots = x.store.roots
	defer s.Close()
	r := locks.Rehearse(bound, s)
	f := r.Finding(ttl)
	if f.Level == locks.OK {
		f.What += ", with open file description locks"
	}
	x.add(f)
	if _, err := x.dir.sweep(context.WithoutCancel(ctx), fileName(r.Name), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.add(locks.Finding{Level: locks.Note, Subject: "rehearsal", What: "its lock file could not be removed: " + err.Error(), Mend: "golock clean"})
	}
}
