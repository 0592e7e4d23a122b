//go:build integration

package etcd_test

import (
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
)

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	t.Parallel()
	far := server.NewFarProxy(t, etcdtest.Shared(t).Addr(), locktest.FarAway)
	locktest.KeepsFarAway(t, open(t, "etcd://"+far.Addr()), far)
}
