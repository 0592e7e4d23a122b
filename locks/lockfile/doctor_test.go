package lockfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
)

func examine(t *testing.T, s *Store) (map[string]locks.Finding, error) {
	t.Helper()
	found, err := s.Examine(background, 0)
	by := map[string]locks.Finding{}
	for _, f := range found {
		by[f.Subject] = f
	}
	return by, err
}

// The lock itself is never taken, and a file that is missing is not made.
func TestDoctor(t *testing.T) {
	for _, family := range []Family{Flock, Fcntl} {
		file := filepath.Join(t.TempDir(), "lock")
		s := New(family, file)
		found, err := examine(t, s)
		if err != nil || found["locks"].Level != locks.OK || found["file"].Level != locks.OK {
			t.Errorf("%s: %+v, %v", family, found, err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s: the file was made", family)
		}
		fd, err := s.lock(false, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, err = examine(t, s)
		if err != nil || found["users"].What != "1 hold the lock now, 0 wait, as far as this user may see" {
			t.Errorf("%s: %+v, %v", family, found["users"], err)
		}
		unix.Close(fd)
	}
}

func TestDoctorPlaces(t *testing.T) {
	if found, _ := examine(t, New(Flock, "/tmp/golock-doctor-test.lock")); found["cleaners"].Level != locks.Note {
		t.Errorf("%+v", found["cleaners"])
	}
	if found, err := examine(t, New(Flock, "/nowhere/at/all")); err == nil {
		t.Errorf("%+v", found)
	}
	if found, err := examine(t, New(Fcntl, t.TempDir())); err == nil {
		t.Errorf("a directory: %+v", found)
	}
	nfs := locks.Mount{Point: "/mnt", Type: "nfs4", Options: "rw,local_lock=all"}
	if f := New(Flock, "/mnt/x").mount(nfs); f.Level != locks.Note || f.Why == "" {
		t.Errorf("%+v", f)
	}
}
