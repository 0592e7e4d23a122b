//go:build integration

// Package answers_test checks what programs get from golock: answers on standard output, log lines and
// exit codes, from the full program and from the lean one that packages install.
package answers_test

import (
	"os"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// lean is the lean program, with the full one beside it.
var lean string

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, 6, func(dir string) (err error) {
		lean, err = testkit.BuildPair(dir)
		return err
	}))
}

// programs are those that every test of this package runs.
func programs() map[string]string {
	return map[string]string{"full": testkit.Golock, "lean": lean}
}

// stores makes a store of each kind: kernel locks, leases in files, a server.
func stores(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"local": "local://" + testkit.Place(t, 0o700),
		"mkdir": "mkdir://" + testkit.Place(t, 0o700),
		"redis": redistest.StoreURL(t),
	}
}
