//go:build integration

package redis_test

import (
	"testing"

	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
)

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	t.Parallel()
	far := server.NewFarProxy(t, redistest.Shared(t).Addr(), locktest.FarAway)
	locktest.KeepsFarAway(t, open(t, "redis://"+far.Addr()+"?quarantine=0"), far)
}
