//go:build world

package world_test

import (
	"strings"
	"testing"
	"time"

	"golock/test/testkit"
)

// TestSuspend suspends a guest to memory (ACPI S3) for longer than a lease. The command of the lease must be dead
// when the guest wakes; a kernel lock outlives the sleep with its command.
func TestSuspend(t *testing.T) {
	const sleep = 20 * time.Second
	g := boot(t, "one", 1)
	g.run(t, "suspend-before")
	asleep := g.begin(timeOfScript, "suspend")
	testkit.Eventually(t, "the guest sleeps", func() bool { return strings.Contains(g.ask("info status"), "suspended") })
	time.Sleep(sleep) // the suspend
	g.tell("system_wakeup")
	if r := <-asleep; r.code != 0 {
		t.Fatalf("suspend: %+v", r)
	}
	t.Log(g.run(t, "suspend-after"))
}

// TestClock sets the wall clock of a guest an hour forth and two hours back while locks are held, awaited and kept.
func TestClock(t *testing.T) {
	g := boot(t, "one", 1)
	g.scripts(t, "clock")
}
