package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/locks"
)

func TestExamine(t *testing.T) {
	found := Examine(true, time.Hour)
	subjects := map[string]locks.Finding{}
	for _, f := range found {
		subjects[f.Subject] = f
		if f.What == "" || (f.Level != locks.OK && f.Why == "") {
			t.Errorf("says too little: %+v", f)
		}
	}
	for _, subject := range []string{"kernel", "/proc", "pidfd", "descendants", "stalls"} {
		if subjects[subject].Level != locks.OK {
			t.Errorf("%s: %+v", subject, subjects[subject])
		}
	}
}

func TestNoProc(t *testing.T) {
	if f := procfs(t.TempDir()); f.Level != locks.Problem || f.Fix == "" {
		t.Errorf("%+v", f)
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
		if f, inside := container(proc); inside != want || inside && f.Level != locks.Note {
			t.Errorf("%s: %v %+v", target, inside, f)
		}
	}
}

// A stall counts against the time that a lease leaves.
func TestStalls(t *testing.T) {
	for _, tt := range []struct {
		worst  time.Duration
		leased bool
		ttl    time.Duration
		want   locks.Level
	}{
		{100 * time.Millisecond, true, 30 * time.Second, locks.OK},
		{100 * time.Millisecond, true, 2 * time.Second, locks.Note},
		{400 * time.Millisecond, true, 2 * time.Second, locks.Problem},
		{10 * time.Second, false, 0, locks.OK},
	} {
		f := stalls(tt.worst, tt.leased, tt.ttl)
		if f.Level != tt.want || !strings.Contains(f.What, tt.worst.String()) {
			t.Errorf("%+v: %+v", tt, f)
		}
	}
	if longest := longestStall(20 * time.Millisecond); longest <= 0 {
		t.Errorf("%v", longest)
	}
}
