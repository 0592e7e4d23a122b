package signals

import (
	"strings"
	"syscall"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"TERM": 15, "SIGTERM": 15, "term": 15, "sigTerm": 15, "15": 15, "HUP": 1, "KILL": 9, "USR1": 10, "STKFLT": 16, "WINCH": 28, "IO": 29, "PWR": 30, "SYS": 31,
		"RTMIN": 34, "RTMIN+1": 35, "RTMIN+30": 64, "SIGRTMAX": 64, "RTMAX-1": 63, "RTMAX-30": 34, "64": 64, "1": 1,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "SIG", "0", "-1", "+9", "65", "TERMINATE", "RTMIN-1", "RTMAX+1", "RTMIN+31", "RTMIN+", "RTMIN1", "RTMAX-31", "9 ", "1e1"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("Parse(%q) = %d, want an error", text, got)
		}
	}
}

func TestNameIsReadBack(t *testing.T) {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		name := Name(sig)
		if got, err := Parse(name); err != nil || got != sig {
			t.Errorf("Name(%d) = %q, which Parse reads as %d, %v", sig, name, got, err)
		}
	}
}

func TestRewrites(t *testing.T) {
	r := Rewrites{}
	for _, rule := range []string{"TERM:INT", "INT:QUIT", "HUP:0", "USR1:9", "RTMIN+1:USR2"} {
		if err := r.Add(rule); err != nil {
			t.Errorf("Add(%q): %v", rule, err)
		}
	}
	for sig, want := range map[syscall.Signal]syscall.Signal{15: 2, 2: 3, 1: 0, 10: 9, 35: 12, 3: 3} {
		if got := r.Apply(sig); got != want {
			t.Errorf("Apply(%d) = %d, want %d", sig, got, want)
		}
	}
	for _, rule := range []string{"", "TERM", "TERM:", ":INT", "TERM:INT:HUP", "0:INT", "KILL:TERM", "CHLD:TERM", "PIPE:0", "TERM:none"} {
		if err := r.Add(rule); err == nil {
			t.Errorf("Add(%q) accepts it", rule)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"TERM", "RTMIN+3", "sigrtmax-2", "9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sig, err := Parse(s)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') {
				t.Fatalf("the error for %q has several lines", s)
			}
			return
		}
		if sig < 1 || sig > rtMax {
			t.Fatalf("Parse(%q) = %d", s, sig)
		}
	})
}
