package bind

import (
	"os"
	"path/filepath"
	"testing"

	"golock/locks"
)

// Ports that the kernel gives away are told, and the address is never taken.
func TestDoctorPort(t *testing.T) {
	settings := t.TempDir() + "/"
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(settings, name), []byte(text), 0o600)) }
	write("ip_local_port_range", "32768\t60999\n")
	for _, tt := range []struct {
		port, reserved string
		want           locks.Level
	}{{"7001", "", locks.OK}, {"40000", "", locks.Note}, {"40000", "8080,39999-40001", locks.OK}, {"40000", "8080", locks.Note}} {
		write("ip_local_reserved_ports", tt.reserved+"\n")
		s, err := NewPort("127.0.0.1:" + tt.port)
		must(t, err)
		if found := s.space.(*port).examine(settings); len(found) == 0 || found[0].Level != tt.want {
			t.Errorf("%+v: %+v", tt, found)
		}
	}
}

func TestDoctorUsers(t *testing.T) {
	s, err := NewAbstract("golock-doctor-test-" + filepath.Base(t.TempDir()) + t.Name())
	must(t, err)
	says := func(want string) {
		t.Helper()
		found, err := s.Examine(background, 0)
		must(t, err)
		if found[0].What != want {
			t.Errorf("%+v, want %s", found[0], want)
		}
	}
	says("nobody has the address now, as far as this user may see")
	l, err := try(t, s)
	must(t, err)
	says("somebody has the address now")
	must(t, l.Release(background))
	says("nobody has the address now, as far as this user may see")
	file, err := NewSocket(filepath.Join(t.TempDir(), "nowhere", "sock"))
	must(t, err)
	found, err := file.Examine(background, 0)
	must(t, err)
	if found[1].Level != locks.Problem {
		t.Errorf("%+v", found)
	}
}
