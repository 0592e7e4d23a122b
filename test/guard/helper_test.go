//go:build integration

// Package guard_test checks the watchdog on a store with leases, here Redis, and where the store has a part
// in it etcd too: when golock, the watchdog or the server fails, no descendant of the command outlives the lease, also none that left the
// process group and the session.
//
// Leases that must not end during a test are longer than the test's patience.
package guard_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// lean is the lean program, with the full one beside it.
var lean string

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, 8, func(dir string) (err error) {
		lean, err = testkit.BuildPair(dir)
		return err
	}))
}

// long is a lease that does not end during a test.
const long = "--ttl=10m"

// shared makes a sandbox on the server of all tests.
func shared(t *testing.T) *testkit.Sandbox {
	t.Parallel()
	return testkit.New(t, redistest.StoreURL(t))
}

// leased are empty stores on the servers of all tests, whose leases end in different ways.
var leased = map[string]func(testing.TB) string{
	"redis": func(t testing.TB) string { return redistest.StoreURL(t) },
	"etcd":  func(t testing.TB) string { return etcdtest.StoreURL(t) },
}

// onLeased runs a test on each of them.
func onLeased(t *testing.T, test func(t *testing.T, s *testkit.Sandbox)) {
	t.Parallel()
	testkit.Each(t, leased, func(t *testing.T, _ string, url func(testing.TB) string) {
		test(t, testkit.New(t, url(t)))
	})
}

// own makes a sandbox with a server that the test may stop.
func own(t *testing.T) (*testkit.Sandbox, *redistest.Server) {
	t.Parallel()
	server := redistest.Start(t)
	return testkit.New(t, server.SocketURL("quarantine=0s")), server
}

// familyScript is a command that ignores TERM, as do its descendants: a child in its group, and two
// that were double-forked into a session of their own.
const familyScript = `trap "" TERM
echo member $$
sleep 1000 & echo member $!
(setsid sh -c 'echo member $$; sleep 1000 & echo member $!; exec sleep 1000' &)
exec sleep 1000`

// household is a golock with its watchdog (guard), the command and its descendants (family).
type household struct {
	*testkit.Process
	s      *testkit.Sandbox
	guard  int
	family []int // the command first
}

func newHousehold(s *testkit.Sandbox, flags ...string) *household {
	s.T.Helper()
	h := &household{s: s, Process: s.Job(append(flags, "--", "sh", "-c", familyScript)...).Start()}
	for range 4 {
		h.family = append(h.family, h.ExpectPID("member"))
	}
	h.guard = testkit.StatOf(h.family[0]).Parent
	if p := testkit.StatOf(h.guard).Parent; p != h.PID {
		s.T.Fatalf("the guard %d is a child of %d, not of golock, %d", h.guard, p, h.PID)
	}
	return h
}

// dead fails the test if one of the family lives.
func (h *household) dead() {
	h.T.Helper()
	for i, pid := range h.family {
		if h.s.Lives(pid) {
			h.T.Fatalf("member %d of the family lives; stderr %q", i, h.Stderr())
		}
	}
}

// awaitDeath waits until a process has died.
func awaitDeath(s *testkit.Sandbox, what string, pid int) {
	s.T.Helper()
	s.Eventually(what+" is dead", func() bool { return !s.Lives(pid) })
}

// successor is a golock that waits for the slot, and whose command prints which of the family are
// still alive.
func (h *household) successor() *testkit.Process {
	h.T.Helper()
	var stats strings.Builder
	for _, pid := range h.family {
		fmt.Fprintf(&stats, "/proc/%d/stat ", pid)
	}
	return h.s.Job("--", "sh", "-c", "cat "+stats.String()+"2>/dev/null | grep -v ') [ZX]'; echo end").Start()
}

// succeeds waits for the successor, which must find none of them alive.
func succeeds(p *testkit.Process) {
	p.T.Helper()
	p.Expect("end")
	p.Expects(0)
}
