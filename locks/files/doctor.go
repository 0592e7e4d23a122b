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
			"whether other machines see the directory stays open", "")
	}
	if s.isAtomic(ctx, &found) {
		f, _ := locks.Rehearse(ctx, s, ttl, 0)
		found.Append(f)
		found.OK("waiting", "nothing is pushed over a shared directory: the next in line looks ten times a second")
	}
	return found, nil
}

// examineMode says who is trusted. The sticky bit is of no help: any user's golock
// removes dead entries.
func (s *Store) examineMode(found *locks.Findings) {
	if st, err := stat(unix.AT_FDCWD, s.dir, 0); err != nil || st.Mode&0o002 == 0 {
		found.OK("directory", s.dir+" is there")
		return
	}
	found.Add(locks.Note, "directory", s.dir+" is there, and every user may write to it",
		"whoever may write there can take or end the slots of all, and put links where golock writes",
		"a group for those who share it, and chmod o-w")
}

// examineMount says what the file system means for locks.
func examineMount(found *locks.Findings, m locks.Mount) {
	what := fmt.Sprintf("%s, %s mounted on %s", m.Type, m.Source, m.Point)
	const shared = " cifs smb3 ceph 9p virtiofs ocfs2 gfs2 lustre gpfs beegfs orangefs afs "
	switch {
	case strings.HasPrefix(m.Type, "nfs"):
		found.OK("file system", what)
		examineNFS(found, m)
	case strings.Contains(shared, " "+m.Type+" "):
		found.OK("file system", what+", which machines share")
	case strings.HasPrefix(m.Type, "fuse"):
		found.Add(locks.Note, "file system", what,
			"golock does not know whether making and renaming a name is atomic there for other machines too",
			"golock check from two machines at once, before it is trusted")
	default:
		found.Add(locks.Note, "file system", what,
			"a local file system: machines that do not see this very disk are not excluded, and who waits has to poll",
			"--store local:///DIR on one machine; for several a file system that they share")
	}
}

func examineNFS(found *locks.Findings, m locks.Mount) {
	level, fix := locks.OK, ""
	var worse []string
	if _, soft := m.Option("soft"); soft {
		level = locks.Note
		worse = append(worse, "soft: an outage shows as an error instead of a wait; leases run out sooner")
	}
	if version, _ := m.Option("vers"); strings.HasPrefix(version, "2") {
		level = locks.Problem
		worse = append(worse, "NFS 2: making a file with O_EXCL is not atomic")
	}
	if _, async := m.Option("nocto"); async {
		level = locks.Problem
		worse = append(worse, "nocto: one machine may see old directories for as long as it caches them: two may be let in")
	}
	if len(worse) > 0 {
		fix = "mount with hard,vers=4.2 and without nocto"
	}
	found.Add(level, "NFS", "options "+locks.Printable(m.Options, 300), strings.Join(worse, "; "), fix)
}

// isAtomic tries with a name made up for it whether a version is made only once.
func (s *Store) isAtomic(ctx context.Context, found *locks.Findings) bool {
	name := "golock-doctor-" + strconv.FormatUint(rand.Uint64(), 16)
	defer s.Forget(ctx, name)
	d := s.directoryOf(locks.KeyOf(name))
	err := d.make(name)
	if err == nil {
		var h *handle
		if h, err = d.open(); err == nil {
			defer h.close()
			err = s.make(h, 1, &state{})
		}
	}
	switch err {
	case errTaken:
		found.OK("primitives", "names made with "+s.scheme+" are made once only and complete")
		return true
	case nil:
		err = errors.New("succeeds twice")
	}
	found.Add(locks.Problem, "primitives", "making a name with "+s.scheme+": "+err.Error(),
		"without it two may be let in at once, or nobody",
		"the right to write "+s.dir+", another file system, or another of mkdir://, symlink:// and excl://")
	return false
}
