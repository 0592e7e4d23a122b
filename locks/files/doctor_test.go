package files

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

func examineIn(t *testing.T, scheme, dir string) map[string]locks.Finding {
	t.Helper()
	return locktest.Examine(t, New(scheme, dir))
}

// A directory on a local file system, which tests run on, and one that is open to all.
func TestDoctorNotes(t *testing.T) {
	dir := t.TempDir()
	found := examineIn(t, "excl", dir)
	if found["directory"].Level != locks.OK || found["file system"].Level != locks.Note {
		t.Errorf("%+v", found)
	}
	testkit.Must(t, os.Chmod(dir, 0o777))
	if f := examineIn(t, "excl", dir)["directory"]; f.Level != locks.Note || f.Fix == "" {
		t.Errorf("open to all: %+v", f)
	}
}

// A primitive that makes the same name twice is found out.
func TestDoctorNotAtomic(t *testing.T) {
	s := New("mkdir", t.TempDir())
	s.make = func(h *handle, n int64, v *state) error {
		return os.WriteFile(h.path+"/"+versionName(n), v.text(), 0o600)
	}
	var f locks.Findings
	if s.examinePrimitive(t.Context(), &f) || f[0].Level != locks.Problem || !strings.Contains(f[0].What, "making a name with mkdir: succeeds twice") {
		t.Errorf("%+v", f)
	}
	if files, _ := filepath.Glob(s.dir + "/*"); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestDoctorReadOnly(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		dir = "/proc/self" // where not even root makes anything
	} else if err := unix.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if f := examineIn(t, "mkdir", dir)["primitives"]; f.Level != locks.Problem || f.Fix == "" {
		t.Errorf("%+v", f)
	}
}

// What mount options of NFS mean.
func TestDoctorNFS(t *testing.T) {
	for options, want := range map[string]locks.Level{
		"rw,relatime,rw,vers=4.2,hard,proto=tcp": locks.OK,
		"rw,vers=4.1,soft,proto=tcp":             locks.Note,
		"rw,vers=3,hard,nocto":                   locks.Problem,
		"rw,vers=2,hard":                         locks.Problem,
	} {
		var found locks.Findings
		examineMount(&found, locks.Mount{Point: "/mnt", Type: "nfs4", Source: "server:/export", Options: options})
		if len(found) != 2 || found[1].Level != want || (want != locks.OK && found[1].Why == "") {
			t.Errorf("%s: %+v", options, found)
		}
	}
}
