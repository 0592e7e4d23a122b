//go:build integration

package guard_test

import (
	"testing"
	"time"

	"golock/locks/etcd/etcdtest"
	"golock/test/testkit"
)

// A server that is silent for longer than the lease: stop signal, KILL a sixth of the TTL later, 79.
// (The exact moments: package renewal, in virtual time.)
func TestOutage(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		s, server := own(t)
		testOutage(t, s, server.SocketURL("quarantine=0s", "prefix=other"), server.Pause, server.Resume)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		server := etcdtest.Start(t)
		testOutage(t, testkit.New(t, server.URL()), server.URL()+"/other", server.Pause, server.Resume)
	})
}

func testOutage(t *testing.T, s *testkit.Sandbox, other string, pause, resume func()) {
	polite := s.Job("--ttl", "6", "--", "sh", "-c",
		`trap 'echo stopped; exit 3' TERM; echo begun; sleep 600 & wait`).Start()
	polite.Expect("begun")
	h := newHousehold(testkit.New(t, other), "--ttl", "6")
	pause()
	polite.Expect("stopped")
	polite.Expects(79, `golock: lock "job": the slot could not be kept: no renewal for `, "; the command was stopped\n")
	for _, pid := range h.family {
		awaitDeath(h.s, "the family", pid)
	}
	resume()
	h.Expects(79)
}

// A server that does not answer at the start: 69, in bounded time, and nothing is started.
func TestUnreachable(t *testing.T) {
	s, server := own(t)
	server.Pause()
	for flag, least := range map[string]time.Duration{"--wait=0.5": 500 * time.Millisecond, "-n": 0} {
		r := s.Job(flag, "--", "echo", "started").Run()
		r.Complaint(t, 69, "cannot be reached")
		if r.Took < least || r.Took > 9*time.Second { // 10 s is what others try for
			t.Errorf("%s took %v", flag, r.Took)
		}
	}
}

// A job that is stopped for longer than its lease is dead at the deadline, and
// fg reports 79.
func TestJobStoppedForLongerThanTheLease(t *testing.T) {
	s := shared(t)
	x := s.Bash("R=" + testkit.Golock + " run --name job --ttl 5 --store " + s.Store)
	x.Type("$R -- sh -c 'echo in''side; exec sleep 1000'")
	x.Shows("inside")
	x.Key("\x1a")
	x.Shows("Stopped")
	x.Shows("ready> ")
	s.Job("--", "true").Run().Expect(t, 0)
	x.Key("fg >/dev/null; echo co''de=$?\n")
	x.Shows("code=79")
}
