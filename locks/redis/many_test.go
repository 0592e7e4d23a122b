//go:build integration

package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// The master is killed; the replica that follows it knows the holder or not,
// and the holder keeps its slot.
// Slow: Sentinel takes its time to declare a master down and to promote another.
func TestFailover(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	store := open(t, s.URL())
	holder := Get(t, store, "n")
	grant := holder.Grant()
	w := Queue(t, open(t, s.URL()), "n")
	listening(t, s.Master, 1)
	s.Master.Kill()
	if err := renewUntil(holder, time.Now().Add(testkit.Patience)); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	if role := s.Replica.Info("replication", "role"); role != "master" {
		t.Errorf("renewed at a %s", role)
	}
	Same(t, holder.Grant(), grant)
	if busy := Refused(t, store, "n"); len(busy.Holders) != 1 {
		t.Errorf("busy: %v", busy)
	}
	w.Waits()
	Release(t, holder)
	if l := w.Granted(); l.Grant().Fence <= grant.Fence {
		t.Errorf("fence %d after %d", l.Grant().Fence, grant.Fence)
	}
}

// Slow: a cluster takes seconds to become complete.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := open(t, c.URL("quarantine=0"))
	names := []string{"a", "b", "{a}", "a{b}c", "}x{", "long " + strings.Repeat("y", 200)}
	for _, name := range names {
		holder := Take(t, s, name)
		first, second := Queue(t, s, name), Queue(t, s, name)
		Refused(t, s, name)
		Renew(t, holder)
		Release(t, holder)
		l := first.Granted()
		second.Waits()
		Release(t, l)
		second.Granted()
	}
	testkit.Eventually(t, "all names are listed", func() bool { return len(List(t, s, "")) == len(names) })

	if err := Denied(t, open(t, c.Nodes[0].URL()), nameElsewhere(t, c)); !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("Join at one node = %v", err)
	}
}

// A node that is killed and comes back empty is a restart like any other.
// Slow: a cluster needs seconds to see a node go and come, and then its quarantine.
func TestClusterNodeRestarts(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	s := open(t, c.URL())
	name := nameElsewhere(t, c)
	holder := Get(t, s, name)
	grant := holder.Grant()
	for _, n := range c.Nodes {
		if len(n.Do("KEYS", "golock:{*").([]any)) == 0 {
			continue
		}
		n.Kill()
		n.Restart()
	}
	if err := renewUntil(holder, time.Now().Add(testkit.Patience)); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	Same(t, holder.Grant(), grant)
	w := Queue(t, s, name)
	Release(t, holder)
	w.Granted()
}

// nameElsewhere finds a name that the first node of a cluster does not keep.
func nameElsewhere(t *testing.T, c *redistest.Cluster) string {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
		key := "golock:{" + locks.KeyOf(name).String() + "}:s"
		if slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", key).(int64); slot > 16384/3+1 {
			return name
		}
	}
	t.Fatal("no name")
	return ""
}

// A grant counts only when replicas have it.
// Slow: a replica takes seconds to connect.
func TestMinReplicas(t *testing.T) {
	t.Parallel()
	server, _ := steady(t)
	s := open(t, server.URL("quarantine=0", "min-replicas=1"))
	var outage *locks.OutageError
	if err := Fails(t, s, "n"); !errors.As(err, &outage) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("Join = %v", err)
	}
	watch := open(t, server.URL("quarantine=0"))
	Becomes(t, watch, "n", 0, 0)
	host, port, _ := strings.Cut(server.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port)
	testkit.Eventually(t, "the replica follows", func() bool { return replica.Info("replication", "master_link_status") == "up" })
	Release(t, Take(t, s, "n"))
	// A replica by itself takes no locks: until it is promoted it is an outage.
	if err := Fails(t, open(t, replica.URL()), "n"); !errors.As(err, &outage) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("Join at a replica = %v", err)
	}
}
