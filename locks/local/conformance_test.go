package local_test

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/local"
	"golock/locks/locktest"
)

// Slow: random histories, with processes of their own.
func TestConformance(t *testing.T) {
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string { return "local://" + t.TempDir() + "/locks" },
		Open: func(url string) (locks.Store, error) {
			return local.New(strings.TrimPrefix(url, "local://")), nil
		},
	})
}
