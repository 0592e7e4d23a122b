//go:build integration

package campaign_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/test/islands"
	"golock/test/testkit"
)

// divided is Redis on three hosts, each with a server and a sentinel. A host can be cut off from the
// others.
type divided struct {
	servers *redistest.Sentinels
	network islands.Network
	round   string
	serial  sync.Mutex // one partition at a time: two would leave no majority
	young   time.Time  // until then nothing new is granted
}

func openSentinel(t *testing.T, _ *engine) site {
	n := islands.New(t, hosts)
	d := &divided{servers: redistest.StartSentinelAt(t, n.Sites(0, 1, 2)), network: n}
	d.settle()
	return d
}

// settle notes when a server that has started, or taken over, by now is not young any more.
func (d *divided) settle() { d.young = time.Now().Add(quarantine + time.Second) }

func (d *divided) begin(p *plan) error {
	d.round = p.name()
	time.Sleep(time.Until(d.young)) // its quarantine is no fault of the round's
	return nil
}

func (d *divided) skewed() bool { return false }

func (d *divided) enter(host int) []string { return d.network[host].Enter() }

func (d *divided) name(name int) string { return fmt.Sprintf("%s-%d", d.round, name) }

// url asks for a replica: without it two may run (docs/stores.md).
func (d *divided) url(_, _ int) string { return d.servers.URL("min-replicas=1") }

// fault cuts off the host with the master. It hits all: another server takes over, if the
// partition lasts.
func (d *divided) fault(f planned) (host int, ok bool) {
	d.serial.Lock()
	defer d.serial.Unlock()
	master := slices.IndexFunc(d.servers.Servers, func(s *redistest.Server) bool {
		role, err := s.Try("ROLE")
		return err == nil && role.([]any)[0] == "master"
	})
	if master < 0 || d.network[master].Cut(true) != nil {
		return -1, false
	}
	time.Sleep(f.For + 2*quarantine) // the fault; the next master grants before it is over
	ok = d.network[master].Cut(false) == nil && testkit.Within(patience, d.servers.Complete)
	d.settle()
	return -1, ok
}
