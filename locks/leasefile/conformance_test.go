package leasefile_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/leasefile"
	"golock/locks/locktest"
)

// Processes of the suite come to this function again, by its name; the URLs tell
// them which primitive they use.
func TestConformance(t *testing.T) {
	if inSuite() {
		conform(t, "")
		return
	}
	for _, scheme := range leasefile.Schemes() {
		t.Run(scheme, func(t *testing.T) { conform(t, scheme) })
	}
}

// inSuite reports whether this process is one of the suite's.
func inSuite() bool { return os.Getenv("GOLOCK_LOCKTEST_PEER") != "" }

func conform(t *testing.T, scheme string) {
	var stores atomic.Int64
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string {
			dir := t.TempDir() + "/" + strconv.FormatInt(stores.Add(1), 10)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return scheme + "://" + dir
		},
		Open:      func(url string) (locks.Store, error) { return leasefile.Open(url) },
		TTL:       4 * time.Second,
		Hesitates: true,
	})
}
