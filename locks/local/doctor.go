package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// Examine implements locks.Store. It makes no directory.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	d, err := openDirectory(s.path, s.roots, doNotCreate)
	if err != nil {
		return nil, err
	}
	defer d.close()
	x := &examination{store: s, opened: d, existing: d.path}
	for unix.Access(x.existing, unix.F_OK) != nil && x.existing != "/" {
		x.existing = path.Dir(x.existing)
	}
	x.directory()
	x.fileSystem()
	x.mounts("/proc", append([]int{1}, procfs.Ancestors(0)...))
	if d.exists {
		x.mode()
		x.unprotected(ctx)
		f, _ := locks.TryTestLock(ctx, s, ttl, 0)
		if f.Level == locks.OK {
			f.What += ", with open file description locks"
		}
		x.Append(f)
	}
	return x.Findings, nil
}

// examination collects findings.
type examination struct {
	locks.Findings
	store    *Store
	opened   *directory
	existing string // the directory, or the nearest existing directory above it
}

// directory reports which directory it is, and why.
func (x *examination) directory() {
	at := x.opened.path
	what := at + ", as the URL says"
	if x.store.path == "" {
		what = at + ", this user's default. Another user has /run/golock/UID, /run/lock/golock-UID or /tmp/golock-UID: " +
			"for runs of several users name a directory that their group may write (mode 2770), --store local:///DIR"
	}
	parent := path.Dir(at)
	// For root, golock also makes the parent of the default directory. access(2) refuses root only
	// what is read-only.
	refused := unix.Access(parent, unix.W_OK|unix.X_OK)
	isDefaultOfRoot := x.store.path == "" && x.store.roots.user == 0
	mayMake := refused == nil || isDefaultOfRoot && unix.Access(x.existing, unix.W_OK|unix.X_OK) == nil
	fix := "mkdir " + at + " for this user"
	hint := hintReadOnly(refused, parent)
	if hint != "" {
		fix = hint
	}
	x.Judge("directory",
		locks.Row{When: x.opened.exists, Level: locks.OK, What: what},
		locks.Row{When: mayMake, Level: locks.OK, What: what + "; it does not exist yet, the first run makes it"},
		locks.Row{
			When: true, Level: locks.Problem,
			What: what + "; it does not exist yet",
			Why:  fmt.Sprintf("golock makes its last part, and may not write %s: %v", parent, refused),
			Fix:  fix,
		},
	)
}

// fileSystem reports the type of the file system. openDirectory has already refused types that it
// knows to be on another machine.
func (x *examination) fileSystem() {
	m, err := locks.MountOf(x.existing)
	what := m.Type + ", mounted on " + m.Point
	isForeign := strings.HasPrefix(m.Type, "fuse") && m.Type != "fuseblk" || m.Type == "fakeowner" // Docker Desktop has it
	x.Judge("file system",
		locks.Row{
			When: err != nil, Level: locks.Note,
			What: fmt.Sprintf("cannot be found out: %v", err),
			Why:  "other hosts may not see locks on a network file system",
		},
		locks.Row{
			When: isForeign, Level: locks.Note, What: what,
			Why: "golock does not know whether this one has locks of its own that others do not see",
			Fix: "take a directory on a local disk, if other machines mount it too",
		},
		locks.Row{When: true, Level: locks.OK, What: what},
	)
}

// mounts examines whether process 1 and the ancestors of this process see the same directory at the
// path.
func (x *examination) mounts(proc string, pids []int) {
	text, err := os.ReadFile(proc + "/self/mountinfo")
	if err != nil {
		return // the findings about the machine already say that there is no /proc
	}
	mounts := locks.ParseMounts(string(text))
	at := x.existing
	if resolved, err := filepath.EvalSymlinks(at); err == nil {
		at = resolved
	}
	what := "nothing points to a private " + at
	for _, pid := range pids {
		other, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/mountinfo")
		here, there := mounts.Where(at), locks.ParseMounts(string(other)).Where(at)
		switch {
		case err != nil, here == "", there == "":
		case here == there && !bytes.Equal(text, other):
			what = "this process has mounts of its own (a namespace), but " + at + " is the same as outside"
		case here == there:
		default:
			x.Add(locks.Problem, "mounts", at+" is private: this process has mounts of its own "+
				"(a service with PrivateTmp=, a container, unshare -m), and process "+strconv.Itoa(pid)+
				" sees another directory there",
				"runs elsewhere on this machine have other locks: two would run",
				"have /run/golock made at boot (tmpfiles.d: d /run/golock 1777 root root), "+
					"or name a directory that all of them see with --store local:///DIR")
			return
		}
	}
	x.OK("mounts", what)
}

// unprotected reports commands that run without their slot. It skips directories that it cannot
// read, because golock ls reports those.
func (x *examination) unprotected(ctx context.Context) {
	entries, _ := x.store.unprotected(ctx, "")
	for _, e := range entries {
		x.Add(locks.Problem, "slots", fmt.Sprintf("process %d runs without its slot of lock %q, which it has closed: %s", e.PID, e.Name, strings.Join(e.Command, " ")),
			"golock became this command (--exec), and a command that closes all descriptors frees the slot: another run can start beside it",
			"run it without --exec")
	}
}

// mode examines who may write to the directory, and who owns it.
func (x *examination) mode() {
	mode, owner := x.opened.stat.Mode, x.opened.stat.Uid
	what := fmt.Sprintf("%04o", mode&0o7777)
	const why = "other users may make, and keep, locks here: that is how several share a directory, and all of them are trusted"
	const fix = "chmod 700 if only one user is meant"
	x.Judge("mode",
		locks.Row{When: mode&0o022 == 0, Level: locks.OK, What: what + ", only its owner may write"},
		locks.Row{When: mode&unix.S_ISVTX != 0, Level: locks.Note, What: what, Why: why, Fix: fix},
		locks.Row{
			When: true, Level: locks.Note,
			What: what + ", without the sticky bit",
			Why:  why + "; each can remove the others' lock files (golock notices that as long as /proc is there)",
			Fix:  "chmod +t, or " + fix,
		},
	)
	x.Judge("owner", locks.Row{
		When: owner != 0 && owner != uint32(x.store.roots.euid), Level: locks.Note,
		What: fmt.Sprintf("the directory belongs to user %d", owner),
		Why:  "its owner can remove and replace everybody's files in it, and lead its path to another place",
		Fix:  "a directory of root's with the sticky bit (mkdir -m 1777), if that user is not trusted",
	})
}
