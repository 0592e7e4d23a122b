package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
)

// Examine implements locks.Store. Like every other use it may hang in a file
// system that does; ctx bounds what it waits.
func (s *Store) Examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	bound, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := await(bound, func() ([]locks.Finding, error) { return s.examine(bound, ttl) })
	if err != nil && bound.Err() != nil {
		err = &locks.OutageError{Store: s.URL(), Err: errors.New("the file system does not answer")}
	}
	return found, err
}

func (s *Store) examine(ctx context.Context, ttl time.Duration) ([]locks.Finding, error) {
	if err := s.checkDir(); err != nil {
		return nil, err
	}
	found := []locks.Finding{s.judgeMode()}
	if m, err := locks.MountOf(s.dir); err == nil {
		found = append(found, judgeMount(m)...)
	} else {
		found = append(found, locks.Finding{Level: locks.Note, Subject: "file system", What: "cannot be found out: " + err.Error(), Why: "whether other machines see the directory stays open"})
	}
	f, able := s.atomic()
	found = append(found, f)
	if !able {
		return found, nil
	}
	r := locks.Rehearse(ctx, s)
	found = append(found, r.Finding(ttl), locks.Finding{Level: locks.OK, Subject: "waiting", What: "nothing is pushed over a shared directory: the next in line looks ten times a second"})
	_ = s.Forget(ctx, r.Name)
	return found, nil
}

// judgeMode says who is trusted. The sticky bit is of no help: who finds a dead
// entry removes it, whoever made it.
func (s *Store) judgeMode() locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "directory", What: s.dir + " is there"}
	var st unix.Stat_t
	if eintr.Repeat(func() error { return unix.Stat(s.dir, &st) }) == nil && st.Mode&0o002 != 0 {
		f.Level, f.What = locks.Note, s.dir+" is there, and every user may write to it"
		f.Why = "whoever may write there can take or end the slots of all, and put links where golock writes"
		f.Fix = "a group for those who share it, and chmod o-w"
	}
	return f
}

// judgeMount says what the file system means for locks.
func judgeMount(m locks.Mount) []locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "file system", What: fmt.Sprintf("%s, %s mounted on %s", m.Type, m.Source, m.Point)}
	switch {
	case strings.HasPrefix(m.Type, "nfs"):
		return append([]locks.Finding{f}, judgeNFS(m)...)
	case slices.Contains([]string{"cifs", "smb3", "ceph", "9p", "virtiofs", "ocfs2", "gfs2", "lustre", "gpfs", "beegfs", "orangefs", "afs"}, m.Type):
		f.What += ", which machines share"
	case strings.HasPrefix(m.Type, "fuse"):
		f.Level, f.Why = locks.Note, "golock does not know whether making and renaming a name is atomic there for other machines too"
		f.Fix = "golock check from two machines at once, before it is trusted"
	default:
		f.Level, f.Why = locks.Note, "a local file system: machines that do not see this very disk are not excluded, and who waits has to poll"
		f.Fix = "--store local:///DIR on one machine; for several a file system that they share"
	}
	return []locks.Finding{f}
}

func judgeNFS(m locks.Mount) []locks.Finding {
	f := locks.Finding{Level: locks.OK, Subject: "NFS", What: "options " + locks.Printable(m.Options, 300)}
	var worse []string
	if _, soft := m.Option("soft"); soft {
		f.Level = locks.Note
		worse = append(worse, "soft: an outage shows as an error instead of a wait; leases run out sooner")
	}
	if version, _ := m.Option("vers"); strings.HasPrefix(version, "2") {
		f.Level = locks.Problem
		worse = append(worse, "NFS 2: making a file with O_EXCL is not atomic")
	}
	if _, async := m.Option("nocto"); async {
		f.Level = locks.Problem
		worse = append(worse, "nocto: one machine may see old directories for as long as it caches them: two may be let in")
	}
	f.Why = strings.Join(worse, "; ")
	if f.Why != "" {
		f.Fix = "mount with hard,vers=4.2 and without nocto"
	}
	return []locks.Finding{f}
}

// atomic tries in a directory of its own whether a version is made once only.
func (s *Store) atomic() (f locks.Finding, able bool) {
	f = locks.Finding{Level: locks.Problem, Subject: "primitives"}
	// Called like what is being built for a name: if golock is killed here,
	// clean removes it.
	ref, err := locks.NewRef("golock doctor")
	if err != nil {
		f.What = err.Error()
		return f, false
	}
	d := &directory{store: s, path: fmt.Sprintf("%s/%s%s", s.dir, newPrefix, ref.ID)}
	if err := makeDirectory(d.path, s.dir); err != nil {
		f.What, f.Why = "the directory cannot be written: "+err.Error(), "no slot can be had there"
		f.Fix = "give this user the right to write " + s.dir
		return f, false
	}
	defer os.RemoveAll(d.path)
	step := func(what string, err error, want error) bool {
		if errors.Is(err, want) && (want != nil || err == nil) {
			return true
		}
		f.What, f.Why = fmt.Sprintf("%s: %v, want %v", what, err, want), "without it two may be let in at once, or nobody"
		f.Fix = "another file system, or another of mkdir://, symlink:// and excl://"
		return false
	}
	h, err := d.open()
	if !step("opening the directory", err, nil) {
		return f, false
	}
	defer h.close()
	text := (&state{}).text()
	ok := step("making a name with "+s.scheme, s.make(h, "t1.a", "v1", text), nil) &&
		step("making it again", s.make(h, "t1.b", "v1", text), errTaken) &&
		step("reading it", last(h.current()), nil)
	if ok {
		h.remove("v1")
		_, err = h.readVersion(1)
		ok = step("reading what was removed", err, unix.ENOENT)
	}
	if ok {
		f.Level, f.What = locks.OK, "names made with "+s.scheme+" are made once only and complete"
	}
	return f, ok
}

func last(_ *state, _ listing, _ []byte, err error) error { return err }
