package files

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
)

// Examine implements locks.Store. A file system that hangs does not block it.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	bound, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := lease.Await(bound, func() ([]locks.Finding, error) { return s.examine(bound, ttl) })
	if err != nil && bound.Err() != nil {
		err = &locks.OutageError{Store: s.URL(), Err: errors.New("the file system does not answer")}
	}
	return found, err
}

func (s *Store) examine(ctx context.Context, ttl time.Duration) (found locks.Findings, err error) {
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	s.examineMode(&found)
	if m, err := locks.MountOf(s.dir); err == nil {
		examineMount(&found, m)
	} else {
		found.Add(locks.Note, "file system", "cannot be found out: "+err.Error(),
			"it is not known whether other machines see the directory", "")
	}
	isAtomic := s.examinePrimitive(ctx, &found)
	if isAtomic {
		f, _ := locks.TryTestLock(ctx, s, ttl, 0)
		found.Append(f)
		found.OK("waiting", "nothing is pushed over a shared directory: the next in line looks ten times a second")
	}
	return found, nil
}

// examineMode examines who may write to the directory. It does not recommend the sticky bit: golock must
// be able to remove dead entries of other users.
func (s *Store) examineMode(found *locks.Findings) {
	st, err := stat(unix.AT_FDCWD, s.dir, 0)
	found.Judge("directory",
		locks.Row{When: err != nil || st.Mode&0o002 == 0, Level: locks.OK, What: s.dir + " is there"},
		locks.Row{
			When: true, Level: locks.Note,
			What: s.dir + " is there, and every user may write to it",
			Why:  "every user can take and end all slots there, and create links where golock writes",
			Fix:  "a group of the users who share it, and chmod o-w",
		},
	)
}

// examineMount examines what the file system means for locks.
func examineMount(found *locks.Findings, m locks.Mount) {
	what := fmt.Sprintf("%s, %s mounted on %s", m.Type, m.Source, m.Point)
	const shared = " cifs smb3 ceph 9p virtiofs ocfs2 gfs2 lustre gpfs beegfs orangefs afs "
	isNFS := strings.HasPrefix(m.Type, "nfs")
	found.Judge("file system",
		locks.Row{When: isNFS, Level: locks.OK, What: what},
		locks.Row{When: strings.Contains(shared, " "+m.Type+" "), Level: locks.OK, What: what + ", which machines share"},
		locks.Row{
			When: strings.HasPrefix(m.Type, "fuse"), Level: locks.Note, What: what,
			Why: "golock does not know whether creating and renaming files is atomic there for other machines",
			Fix: "golock check from two machines at once, before it is trusted",
		},
		locks.Row{
			When: true, Level: locks.Note, What: what,
			Why: "a local file system: other machines do not see these locks, and waiters poll",
			Fix: "--store local:///DIR on one machine; on several, a file system that they share",
		},
	)
	if isNFS {
		examineNFS(found, m)
	}
}

// examineNFS examines the options of a mount of NFS. Several of them may be wrong.
func examineNFS(found *locks.Findings, m locks.Mount) {
	version, _ := m.Option("vers")
	_, isSoft := m.Option("soft")
	_, mayBeStale := m.Option("nocto")
	level, fix := locks.OK, ""
	var why []string
	for _, option := range []locks.Row{
		{
			When: isSoft, Level: locks.Note,
			Why: "soft: an outage shows as an error instead of a wait; leases run out sooner",
		},
		{
			When: strings.HasPrefix(version, "2"), Level: locks.Problem,
			Why: "NFS 2: making a file with O_EXCL is not atomic",
		},
		{
			When: mayBeStale, Level: locks.Problem,
			Why: "nocto: a machine may see an old state for as long as it caches it; then two may run",
		},
	} {
		if option.When {
			level, why = option.Level, append(why, option.Why)
			fix = "mount with hard,vers=4.2 and without nocto"
		}
	}
	found.Add(level, "NFS", "options "+locks.Printable(m.Options, 300), strings.Join(why, "; "), fix)
}

// examinePrimitive tests whether a version can be made only once, with a name that nobody else uses.
func (s *Store) examinePrimitive(ctx context.Context, found *locks.Findings) bool {
	name := "golock-doctor-" + strconv.FormatUint(rand.Uint64(), 16)
	defer s.Forget(ctx, name)
	d := s.directoryOf(locks.KeyOf(name))
	err := d.findOrBuild(name)
	if err == nil {
		var h *handle
		h, err = d.open()
		if err == nil {
			defer h.close()
			err = s.make(h, 1, &state{}) // findOrBuild has made version 1, so this must fail
		}
	}
	if err == nil {
		err = errors.New("succeeds twice")
	}
	level := found.Judge("primitives",
		locks.Row{
			When: err == errTaken, Level: locks.OK,
			What: "names made with " + s.scheme + " are made once only and complete",
		},
		locks.Row{
			When: true, Level: locks.Problem,
			What: "making a name with " + s.scheme + ": " + err.Error(),
			Why:  "without it two may run at once, or nobody",
			Fix:  "the right to write " + s.dir + ", another file system, or another of mkdir://, symlink:// and excl://",
		},
	)
	return level == locks.OK
}
