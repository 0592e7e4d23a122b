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
			t.Errorf("%+v lacks What or Why", f)
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
	examineProc(&found, t.TempDir())
	if found[0].Level != locks.Problem || found[0].Fix == "" {
		t.Errorf("%+v, want a problem with a fix", found)
	}
}

func TestContainer(t *testing.T) {
	proc := t.TempDir()
	if err := os.MkdirAll(proc+"/self/ns", 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(proc, "self/ns/pid")
	for target, isContainer := range map[string]bool{initialPIDs: false, "pid:[4026532177]": true} {
		os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		var found locks.Findings
		examineContainer(&found, proc)
		switch {
		case !isContainer && len(found) > 0:
			t.Errorf("%s: %+v, want no finding", target, found)
		case isContainer && (len(found) != 1 || found[0].Level != locks.Note):
			t.Errorf("%s: %+v, want a note", target, found)
		}
	}
}
