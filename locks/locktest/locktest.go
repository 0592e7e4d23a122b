// Package locktest is the conformance suite for stores: what every store promises, tested
// with real processes.
//
// An engine's test is one function:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, locktest.Engine{Fresh: freshURL, Open: open})
//	}
package locktest

import (
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// Engine is the store under test.
type Engine struct {
	// Fresh gives the URL of a store that nobody has used before.
	Fresh func(t *testing.T) string

	// Open opens the store of such a URL. It is called in other processes too.
	Open func(url string) (locks.Store, error)

	// TTL is the lease time of the processes that the suite may kill. Their slots are free again after
	// it. A store without leases needs none.
	TTL time.Duration

	// Blind says that the store cannot see that a waiter has died before its TTL is over.
	Blind bool

	// Reserves says that a request may be in the queue for a moment although there is room for it.
	Reserves bool

	// Kill makes a store behave as if its process had been killed. With it, the store lives in the test's
	// process: the processes of the suite are goroutines, and each test runs in virtual time.
	Kill func(locks.Store)

	// Only has the names of the tests to run, and of half as many histories, for a store that differs
	// from another one in little. All tests run if it is empty, and in a deep run.
	Only []string
}

var serving sync.Mutex

// Run runs the suite. It must be called by a test named TestConformance at the
// top level: processes of the suite are the same test binary, which comes to
// this call again and acts as one of them.
func Run(t *testing.T, e Engine) {
	if os.Getenv(peerVariable) != "" {
		serving.Lock() // a parallel test may call Run too
		e.servePeer()
		os.Exit(0)
	}
	s, err := e.Open(e.Fresh(t))
	testkit.Must(t, err)
	defer s.Close()
	plain := s.Abilities().Queue == nil
	all := queueTests()
	if plain {
		all = plainTests()
	}
	if len(e.Only) > 0 && !testkit.Deep() {
		all = slices.DeleteFunc(all, func(one test) bool { return !slices.Contains(e.Only, one.name) })
		if len(all) != len(e.Only) {
			t.Errorf("the suite does not have all of %q", e.Only)
		}
	}
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) {
			if e.Kill != nil {
				synctest.Test(t, func(t *testing.T) { one.run(t, &world{t: t, engine: e, url: e.Fresh(t)}) })
				return
			}
			if !plain { // a process that is being started has all descriptors: only its exec closes them
				t.Parallel()
			}
			one.run(t, &world{t: t, engine: e, url: e.Fresh(t)})
		})
	}
}

// test is one test of the suite.
type test struct {
	name string
	run  func(*testing.T, *world)
}

// plainTests returns the tests of a store whose URL is the lock: most of the suite is about names.
func plainTests() []test {
	return []test{{"KilledHolder", testPlainKilledHolder}, {"Nested", testPlainNested}, {"Histories", testHistories}}
}

// queueTests returns the tests of a store that has a queue for each name.
func queueTests() []test {
	return []test{
		{"FenceGrows", testFence},
		{"Rule", testRule},
		{"Slots", testSlots},
		{"FirstComeFirstServed", testOrder},
		{"WaiterIsNotOvertaken", testNotOvertaken},
		{"LeaveQueue", testLeave},
		{"KilledHolder", testKilledHolder},
		{"KilledWaiters", testKilledWaiters},
		{"DeadDoNotCount", testDeadDoNotCount},
		{"Names", testNames},
		{"Nested", testNested},
		{"Entries", testEntries},
		{"Find", testFind},
		{"Attach", testAttach},
		{"Ended", testEnded},
		{"Sweep", testSweep},
		{"Forget", testForget},
		{"Priority", testPriority},
		{"MaxQueue", testMaxQueue},
		{"EvictWaiter", testEvictWaiter},
		{"EvictHolder", testEvictHolder},
		{"ReplaceWaiting", testReplaceWaiting},
		{"ReplaceRunning", testReplaceRunning},
		{"ReplaceOldest", testReplaceOldest},
		{"ReplaceAndMaxQueue", testReplaceMaxQueue},
		{"Hold", testHold},
		{"HoldEnds", testHoldEnds},
		{"HoldEndsBehind", testHoldEndsBehind},
		{"HoldOutlivesHolder", testHoldKilled},
		{"HoldEvicted", testHoldEvicted},
		{"HoldLater", testHoldLater},
		{"Histories", testHistories},
	}
}
