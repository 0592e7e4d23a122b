package bind

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Ports that the kernel gives away are told.
func TestDoctorPort(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	testkit.Must(t, err)
	field := strings.Fields(string(text))
	for port, want := range map[string]locks.Level{"1": locks.OK, field[0]: locks.Note, field[1]: locks.Note} {
		s, err := NewPort("127.0.0.1:" + port)
		testkit.Must(t, err)
		if f := s.address.examine(); f.Level != want {
			t.Errorf("port %s: %+v", port, f)
		}
	}
}

func TestDoctorUsers(t *testing.T) {
	s, err := NewAbstract("golock-doctor-test-" + filepath.Base(t.TempDir()) + t.Name())
	testkit.Must(t, err)
	says := func(want string) {
		t.Helper()
		found, err := s.Examine(background, 0)
		testkit.Must(t, err)
		if found[0].What != want {
			t.Errorf("%+v, want %s", found[0], want)
		}
	}
	says("nobody has the address now, as far as this user may see")
	l, err := Try(t, s, 1)
	testkit.Must(t, err)
	says("somebody has the address now")
	testkit.Must(t, l.Release(background))
	says("nobody has the address now, as far as this user may see")
	file, err := NewSocket(filepath.Join(t.TempDir(), "nowhere", "sock"))
	testkit.Must(t, err)
	found, err := file.Examine(background, 0)
	testkit.Must(t, err)
	if found[1].Level != locks.Problem {
		t.Errorf("%+v", found)
	}
}
