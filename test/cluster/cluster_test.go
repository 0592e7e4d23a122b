//go:build cluster

// Package cluster_test breaks clusters of real servers on three hosts (network namespaces) while golocks of
// all hosts use them: servers are killed and stopped, hosts cut off, disks full. It measures what a user
// sees: commands that ran together, runs that lost their slot, and for how long nobody could start. A kernel
// lock that golock does not know of tells which commands ran together.
//
// It takes minutes, so make test leaves it out. To run it: make cluster STORE=etcd.
package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golock/test/islands"
	"golock/test/testkit"
)

// hosts is the number of hosts. Each has a server and starts golocks.
const hosts = 3

// leaseTime is the TTL of all runs.
const leaseTime = 10 * time.Second

// system is a cluster of servers, one on each host.
type system interface {
	// url returns the URL of the store for the golocks of a host; -1 stands for the host of the tests.
	url(host int) string

	// faults returns the faults to try, in this order.
	faults() []fault

	// repaired reports whether all servers work again.
	repaired() bool
}

// systems has the functions that start a cluster, by the name of the store.
var systems = map[string]func(t *testing.T, n islands.Network) system{"etcd": newQuorum}

// fault is a fault of a cluster that a test makes.
type fault struct {
	name  string
	lasts time.Duration

	// prepare is called before the load begins; nil stands for nothing to do. begin makes the fault, and end ends it.
	prepare, begin, end func(t *testing.T)

	// cutOff is called before begin. It returns the hosts whose golocks reach no majority during the fault. Their
	// runs may lose their slots.
	cutOff func() []int

	// maxPause is the longest time in which nobody may be able to start; 0 if there is no limit.
	maxPause time.Duration

	// forgets says that the servers have forgotten all slots and waiters when they are back. Then all runs lose their
	// slots, and the first golock to come back has the slot.
	forgets bool

	// revokes says that the servers may end all leases when they are back. Then the first golock to come back
	// has the slot, so overlaps and overtaken waiters are no failure.
	revokes bool
}

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		os.Exit(member())
	}
	inside, err := islands.Isolate()
	if err == nil && !inside {
		err = fmt.Errorf("make cluster needs root")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(testkit.Main(m, 1))
}

// TestCluster tries one fault after the other. No two commands of a lock may run together in any of them, except
// where revokes is set.
func TestCluster(t *testing.T) {
	kind := os.Getenv("LOCKTEST_STORE")
	start, isKnown := systems[kind]
	if !isKnown {
		t.Fatalf("LOCKTEST_STORE=%q is not one of those in systems", kind)
	}
	n := islands.New(t, hosts)
	s := start(t, n)
	table := []string{
		"| fault | commands | overlaps | longest | lost runs | nobody could start for | a slot stayed taken for | overtaken |",
		"|---|---:|---:|---:|---:|---:|---:|---:|",
	}
	for _, f := range s.faults() {
		t.Run(f.name, func(t *testing.T) {
			l := newLoad(t, n, s)
			row := l.through(t, &f)
			table = append(table, row)
		})
	}
	t.Logf("%s:\n%s", kind, strings.Join(table, "\n"))
}

// through runs the load before, during and after a fault, and checks the result. It returns the row of the table.
func (l *load) through(t *testing.T, f *fault) (row string) {
	if f.prepare != nil {
		f.prepare(t)
	}
	l.start()
	l.awaitCommands(10)
	affected := f.cutOff()
	began := time.Now()
	f.begin(t)
	time.Sleep(f.lasts) // the fault
	f.end(t)
	testkit.Eventually(t, "the cluster is repaired", l.system.repaired)
	l.awaitCommands(10)
	l.stop()
	cutOff := affected
	if len(affected) == hosts { // no host had a majority, so no waiter lost its place
		cutOff = nil
	}
	found := l.judge(began, cutOff)
	if found.overlaps > 0 && !f.revokes {
		t.Errorf("%d commands ran beside another one, for %v at most", found.overlaps, found.longest)
	}
	if f.maxPause > 0 && found.pause > f.maxPause {
		t.Errorf("nobody could start for %v, want at most %v", found.pause, f.maxPause)
	}
	for _, h := range l.holders {
		want := 0
		for _, host := range affected {
			if host == h.host && (f.lasts > leaseTime || f.forgets) {
				want = 79
			}
		}
		if h.code != want {
			t.Errorf("the run that held a slot on host %d ended with %d, want %d: %s", h.host, h.code, want, h.stderr)
		}
	}
	if len(found.overtaken) > 0 && !f.revokes && !f.forgets {
		t.Errorf("waiters were overtaken: %q", found.overtaken)
	}
	return fmt.Sprintf("| %s | %d | %d | %v | %d | %.1f s | %.1f s | %d |", f.name, found.commands, found.overlaps,
		found.longest.Round(time.Millisecond), found.lost, found.pause.Seconds(), found.stuck.Seconds(), len(found.overtaken))
}
