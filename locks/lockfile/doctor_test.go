package lockfile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks"
	. "golock/locks/locktest"
)

// The lock itself is never taken, and a file that is missing is not made.
func TestDoctor(t *testing.T) {
	for _, family := range []Family{Flock, Fcntl} {
		file := filepath.Join(t.TempDir(), "lock")
		s := New(family, file)
		found := Examine(t, s)
		if found["locks"].Level != locks.OK || found["file"].Level != locks.OK {
			t.Errorf("%s: %+v", family, found)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s: the file was made", family)
		}
		fd, err := s.lock(unix.F_WRLCK, nil)
		if err != nil {
			t.Fatal(err)
		}
		found = Examine(t, s)
		if found["users"].What != "1 hold the lock now, 0 wait, as far as this user may see" {
			t.Errorf("%s: %+v", family, found["users"])
		}
		unix.Close(fd)
	}
}

func TestDoctorPlaces(t *testing.T) {
	if found := Examine(t, New(Flock, "/tmp/golock-doctor-test.lock")); found["cleaners"].Level != locks.Note {
		t.Errorf("%+v", found["cleaners"])
	}
	if found, err := New(Flock, "/nowhere/at/all").Examine(background, 0); err == nil {
		t.Errorf("%+v", found)
	}
	if found, err := New(Fcntl, t.TempDir()).Examine(background, 0); err == nil {
		t.Errorf("a directory: %+v", found)
	}
	nfs := locks.Mount{Point: "/mnt", Type: "nfs4", Options: "rw,local_lock=all"}
	if f := New(Flock, "/mnt/x").mount(nfs); f.Level != locks.Note || f.Why == "" {
		t.Errorf("%+v", f)
	}
}
