package bind

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
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
		locktest.ExpectFinding(t, locktest.Examine(t, s), "port", want)
	}
}

func TestDoctorSocketFile(t *testing.T) {
	file, err := NewSocket(filepath.Join(t.TempDir(), "nowhere", "sock"))
	testkit.Must(t, err)
	locktest.ExpectFinding(t, locktest.Examine(t, file), "directory", locks.Problem)
}
