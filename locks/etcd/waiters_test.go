//go:build integration

package etcd_test

import (
	"testing"
	"time"

	"golock/locks/etcd/etcdtest"
	. "golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// While the waiter in front does not take its turn, all behind it get theirs.
func TestPassedOver(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.StoreURL(t))
	long := TTL(10 * time.Minute) // no lease ends, and none is prolonged
	holder := AcquireAtOnce(t, s, "n")
	_, err := s.Join(background, NewRequest(t, "n", long)) // nobody waits for what it gets
	testkit.Must(t, err)
	second, third, fourth := Enqueue(t, s, "n", long), Enqueue(t, s, "n", long), Enqueue(t, s, "n", long)
	Release(t, holder)
	Release(t, second.ExpectGrant())
	Release(t, third.ExpectGrant())
	Release(t, fourth.ExpectGrant())
}

// Waiters whose watches tell them nothing find out when they prolong their leases.
func TestDeafWatches(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	proxy.Judge(func(request string) server.Verdict {
		if request == "watch" {
			return server.Hang
		}
		return server.Pass
	})
	holder := AcquireAtOnce(t, direct, "n")
	short := TTL(3 * time.Second)
	first, second, third := Enqueue(t, s, "n", short), Enqueue(t, s, "n", short), Enqueue(t, s, "n", short)
	Release(t, holder)
	Release(t, first.ExpectGrant())
	Release(t, second.ExpectGrant())
	Release(t, third.ExpectGrant())
}
