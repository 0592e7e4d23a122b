package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"golock/locks"
)

func TestExamine(t *testing.T) {
	found := Examine(true)
	subjects := map[string]locks.Finding{}
	for _, f := range found {
		subjects[f.Subject] = f
		if f.What == "" || (f.Level != locks.OK && f.Why == "") {
			t.Errorf("says too little: %+v", f)
		}
	}
	for _, subject := range []string{"kernel", "/proc", "pidfd", "descendants"} {
		if subjects[subject].Level != locks.OK {
			t.Errorf("%s: %+v", subject, subjects[subject])
		}
	}
}

func TestNoProc(t *testing.T) {
	var found locks.Findings
	if procfs(&found, t.TempDir()); found[0].Level != locks.Problem || found[0].Fix == "" {
		t.Errorf("%+v", found)
	}
}

func TestContainer(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(proc+"/self/ns", 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(proc, "self/ns/pid")
	for target, want := range map[string]bool{initialPIDs: false, "pid:[4026532177]": true} {
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		var found locks.Findings
		if container(&found, proc); (len(found) == 1) != want || want && found[0].Level != locks.Note {
			t.Errorf("%s: %+v", target, found)
		}
	}
}
