//go:build integration

package crash_test

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/redis/redistest"
)

// The slot of the name moves from one node of a cluster to another, slowly. That is an outage, as is
// every answer that passes (TestPassingReplies of locks/redis): a short one disturbs nobody; a long one
// ends the job before anybody else gets in, with 79 and the server's word for it.
// Slow: a lease must end, and a longer one must come to its renewal.
func TestRedisResharding(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	slot := c.Nodes[0].Do("CLUSTER", "KEYSLOT", "{"+locks.KeyOf("job").String()+"}").(int64)
	from := c.Nodes[slot*3/16384]
	to := c.Nodes[(slot*3/16384+1)%3]
	id := func(node *redistest.Server) any { return node.Do("CLUSTER", "MYID") }
	long := newRow(leasing(t, c.URL("prefix=long", "quarantine=0s"), 4*lesserTTL), 1)
	short := newRow(leasing(t, c.URL("prefix=short", "quarantine=0s"), lesserTTL), 1)
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	keys := func() []any { return from.Do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) }
	move := func(key any) { from.Do("MIGRATE", to.Host, to.Port, key, 0, 5000) }
	move(keys()[0])
	short.holder.awaitDeath()
	long.holder.Says("warning: the slot cannot be renewed")
	for _, key := range keys() {
		move(key)
	}
	for _, node := range []*redistest.Server{to, from, c.Nodes[(slot*3/16384+2)%3]} {
		node.Do("CLUSTER", "SETSLOT", slot, "NODE", id(to))
	}
	long.holder.Says("the store answers again")
	short.holder.Expects(79)
	short.holder.judged = true
	short.finishInOrder(short.queue...)
	if !short.heard("the slot could not be kept", "TRYAGAIN") {
		t.Errorf("79 without the reason: %s", short.report())
	}
	long.served()
}

// The password of a user is changed while a job runs and another waits, and connections are closed: the
// lease cannot be renewed, the job ends in time with 79, the waiter with 69, and the cause is named.
func TestRedisPasswordChanged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "job", "on", ">s3cret", "~*", "&*", "+@all")
	url := strings.Replace(server.URL("quarantine=0s"), "redis://", "redis://job:s3cret@", 1)
	r := newRow(leasing(t, url, lesserTTL), 1)
	server.Do("ACL", "SETUSER", "job", "resetpass", ">other")
	server.Do("CLIENT", "KILL", "TYPE", "normal")
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	r.holder.Expects(79)
	r.queue[0].Expects(69)
	if !r.heard("the slot could not be kept", "WRONGPASS") {
		t.Errorf("79 without the reason: %s", r.report())
	}
	if r.begun(r.queue[0]) || strings.Contains(r.report(), "s3cret") {
		t.Errorf("the waiter has run, or a password is shown: %s", r.report())
	}
	// For another user the slot is free when the lease has run out.
	next := leasing(t, server.URL("quarantine=0s"), shortTTL)
	next.start()
	next.finish()
}
