//go:build integration

package sql_test

import (
	"testing"

	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/sql/sqltest"
)

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		far := server.NewFarProxy(t, b.server.Addr(), locktest.FarAway)
		locktest.KeepsFarAway(t, b.openURL(t, sqltest.URLAt(b.server, far.Addr(), b.name, "quarantine=0")), far)
	})
}
