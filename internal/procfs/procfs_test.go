package procfs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	text := "42 (a) R (b (c) T 7 8 9 1025 9 0 0 0 0 0 0 0 0 0 20 0 3 0 123456789 5 6\n"
	got, err := parseStat(text)
	want := Stat{PID: 42, State: 'T', Parent: 7, Group: 8, Start: 123456789, threads: 3}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", "42 (a", "42 (a) S 1", ") (", "42"} {
		if s, err := parseStat(text); err == nil {
			t.Errorf("%q: %+v", text, s)
		}
	}
}

// ReadStat and Self read what the kernel says of real processes.
func TestProcess(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	s, err := ReadStat(pid)
	self, selfErr := Self()
	if err != nil || selfErr != nil {
		t.Fatal(err, selfErr)
	}
	if self.PID != os.Getpid() {
		t.Errorf("Self() = %+v, want process %d", self, os.Getpid())
	}
	if s.Parent != self.PID || s.Group != self.Group || s.Start < self.Start || !s.Alive() {
		t.Errorf("%+v, want a live child of %+v in its group", s, self)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if s, err := ReadStat(pid); err == nil || s.Alive() || EffectiveUID(pid) != -1 || Command(pid) != nil {
		t.Errorf("after its end: %+v, %v", s, err)
	}
	if BootID() == [16]byte{} {
		t.Error("no boot ID")
	}
}

func TestParseLocks(t *testing.T) {
	for line, want := range map[string]Lock{
		"1: OFDLCK ADVISORY  READ -1 fe:00:1234 576460752303423488 576460752303423488\n": {Kind: "OFDLCK", Shared: true, PID: -1, File: "fe:00:1234", Start: "576460752303423488"},
		"3: -> FLOCK  ADVISORY  WRITE 77 00:2f:9 0 EOF\n":                                {Kind: "FLOCK", Waiting: true, PID: 77, File: "00:2f:9", Start: "0"},
	} {
		if got := parseLocks("lock:\t"+line, "lock:"); len(got) != 1 || got[0] != want {
			t.Errorf("%q: %+v", strings.TrimSpace(line), got)
		}
	}
	if got := parseLocks("pos:\t0\nlock:\t1: FLOCK ADVISORY\n", "lock:"); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestSlowdown(t *testing.T) {
	for text, want := range map[string]int{"19.43 11.36 12.82 20/161 8296\n": 20, "0.00 0.01 0.05 1/99 7\n": 1, "": 0, "a b c d e": 0} {
		if got := runnable(text); got != want {
			t.Errorf("%q: %d processes can run, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int{"0-1\n": 2, "0": 1, "0-3,8,10-11": 7, "": 0, "x-2": 0, "3-1": 0} {
		if got := rangesLength(text); got != want {
			t.Errorf("%q: %d processors, want %d", text, got, want)
		}
	}
	if got := Slowdown(); got < 1 {
		t.Errorf("Slowdown is %v, want at least 1", got)
	}
}
