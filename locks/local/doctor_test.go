package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// Who may do what in the directory is told, and the trial's own file is gone afterwards.
func TestDoctorDirectory(t *testing.T) {
	testkit.NeedRoot(t)
	dir := testkit.Place(t, 0o1777)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, fileName("strange")), []byte("a text"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
	found := locktest.Examine(t, New(dir))
	locktest.ExpectFinding(t, found, "mode", locks.Note, "1777")
	locktest.ExpectFinding(t, found, "test lock", locks.OK, "given back")
	files, err := os.ReadDir(dir)
	testkit.Must(t, err)
	if len(files) != 2 {
		t.Errorf("left behind: %v", files)
	}
	testkit.Must(t, unix.Chmod(dir, 0o777))
	locktest.ExpectFinding(t, locktest.Examine(t, New(dir)), "mode", locks.Note, "without the sticky bit")
	if f, told := locktest.Examine(t, New(dir))["owner"]; told {
		t.Errorf("%+v", f)
	}
	testkit.Must(t, os.Chown(dir, somebody, somebody))
	locktest.ExpectFinding(t, locktest.Examine(t, New(dir)), "owner", locks.Note, "belongs to user 4242")
}

// A process with mounts of its own: what counts is whether the directory is the same one. (One
// that is not: testdata/doctor.txtar.)
func TestDoctorMounts(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	d, err := openDirectory(dir, systemRoots(), false)
	testkit.Must(t, err)
	defer d.close()
	own, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Must(t, err)
	for process, text := range map[string]string{"self": string(own), "1": string(own) + "999999 1 0:99 / /elsewhere rw - tmpfs tmpfs rw\n"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(proc, process), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(proc, process, "mountinfo"), []byte(text), 0o644))
	}
	x := &examination{store: New(dir), opened: d, existing: dir}
	x.mounts(proc, []int{1})
	if f := x.Findings[0]; f.Level != locks.OK || !strings.Contains(f.What, "the same as outside") {
		t.Errorf("%+v", f)
	}
}
