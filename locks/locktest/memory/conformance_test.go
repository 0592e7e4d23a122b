package memory_test

import (
	"os"
	"testing"
	"time"

	"golock/locks/locktest"
	"golock/locks/locktest/memory"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

// run runs the suite on tables that fresh makes.
func run(t *testing.T, fresh func(*testing.T) *memory.Table, only ...string) {
	var server memory.Server
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string { return server.Add(fresh(t)) },
		Open:  server.Open, Kill: memory.Kill, TTL: 3 * time.Second, Blind: true, Only: only,
	})
}

func TestConformance(t *testing.T) {
	run(t, func(*testing.T) *memory.Table { return &memory.Table{} })
}
