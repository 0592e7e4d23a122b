//go:build integration

// Package matrix_test checks from outside what a user can rely on: exit codes, signals, transparency,
// terminals, PID 1, process trees.
//
// LOCKTEST_STORE=redis, mariadb, postgres or etcd runs the same tests on a store with leases, where a
// watchdog is between golock and the command.
package matrix_test

import (
	"os"
	"slices"
	"testing"

	"golock/locks/etcd/etcdtest"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// self is this test binary, which is also the command (command_test.go).
var self, _ = os.Executable()

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "@signals" {
		os.Exit(recordSignals(os.Args[2], os.Args[3:]))
	}
	os.Exit(testkit.Main(m, 6))
}

// storeKind is local, redis, mariadb, postgres or etcd. Each test reads the variable itself, so that the
// cache of go test depends on it.
func storeKind() string {
	if kind := os.Getenv("LOCKTEST_STORE"); kind != "" {
		return kind
	}
	return "local"
}

func leased() bool { return storeKind() != "local" }

func newSandbox(t testing.TB) *testkit.Sandbox {
	t.Helper()
	switch kind := storeKind(); kind {
	case "local":
		return testkit.New(t, "")
	case "redis":
		return testkit.New(t, redistest.StoreURL(t))
	case "etcd":
		return testkit.New(t, etcdtest.StoreURL(t))
	case "mariadb":
		return onDatabase(t, sqltest.Maria(t))
	case "postgres":
		return onDatabase(t, sqltest.Postgres(t))
	default:
		t.Fatalf("LOCKTEST_STORE=%s: want local, redis, mariadb, postgres or etcd", kind)
		return nil
	}
}

func onDatabase(t testing.TB, server *sqltest.Server) *testkit.Sandbox {
	t.Helper()
	return testkit.New(t, server.URL(server.NewDatabase(t), "quarantine=0s"))
}

// supported takes out what a leased store refuses.
func supported(flags ...[]string) [][]string {
	return slices.DeleteFunc(flags, func(f []string) bool {
		return leased() && (slices.Contains(f, "--exec") || slices.Contains(f, "--close"))
	})
}

// golockOf is the golock that runs a command.
func golockOf(command int) int {
	parent := testkit.StatOf(command).Parent
	if leased() {
		parent = testkit.StatOf(parent).Parent // past the guard
	}
	return parent
}
