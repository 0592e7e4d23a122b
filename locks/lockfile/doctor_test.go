package lockfile

import (
	"testing"

	"golock/locks"
)

func TestDoctorPlaces(t *testing.T) {
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
