//go:build world

// Package world_test tries golock's package on Debian guests in QEMU: under their own systemd and cron, with
// directories that guests share by NFS and SMB, and while a guest sleeps, stands still or has its clock set. Most
// tests are scripts in guest/, which run inside; the agent of each guest runs them.
//
// It takes long, so make test leaves it out. To run it: make world.
package world_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golock/test/islands"
	"golock/test/testkit"
)

const (
	// timeOfBoot is the longest time of a boot. An emulated guest on a busy machine takes minutes.
	timeOfBoot = 10 * time.Minute

	// timeOfScript is the longest time of a script.
	timeOfScript = 20 * time.Minute
)

func TestMain(m *testing.M) {
	inside, err := islands.Isolate()
	if err == nil && !inside {
		err = fmt.Errorf("make world needs root")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testkit.SetDefaults()
	os.Exit(m.Run())
}

// scripts runs scripts one after the other.
func (g *guest) scripts(t *testing.T, names string) {
	for _, name := range strings.Fields(names) {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			g.run(t, name)
			t.Logf("ok %s in %.0f s", name, time.Since(began).Seconds())
		})
	}
}

// TestUnits tries the units of docs/examples and of the guide.
func TestUnits(t *testing.T) {
	g := boot(t, "one", 1)
	g.scripts(t, "unit-skip unit-timer unit-exec unit-supervised unit-socket unit-sandbox unit-credential "+
		"unit-leader unit-oom unit-user")
}

// TestCron tries what cron mails.
func TestCron(t *testing.T) {
	g := boot(t, "one", 1)
	g.scripts(t, "cron")
}

// TestReboot reboots a guest in the middle of jobs with waiters: in order, and by a reset.
func TestReboot(t *testing.T) {
	g := boot(t, "one", 1)
	for how, reboot := range map[string]func(){
		"ordered": func() { g.begin(time.Second, "reboot") },
		"reset":   func() { g.tell("system_reset") },
	} {
		t.Run(how, func(t *testing.T) {
			g.run(t, "reboot-before")
			began := time.Now()
			reboot()
			g.await()
			t.Logf("it is back after %.0f s", time.Since(began).Seconds())
			t.Log(g.run(t, "reboot-after", how))
		})
	}
}
