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
	var found locks.Findings
	examineMount(&found, nfs)
	if len(found) != 1 || found[0].Level != locks.Note || found[0].Why == "" {
		t.Errorf("%+v, want a note with its reason", found)
	}
}
