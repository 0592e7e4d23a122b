package files_test

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// The primitives differ only in how a version is made, read and removed. So two of them run the tests
// in which processes make versions at the same time, are killed, or leave something to remove.
func TestConformance(t *testing.T) {
	var stores atomic.Int64
	ofPrimitive := []string{"FenceGrows", "KilledHolder", "KilledWaiters", "Names", "Sweep", "Forget", "Histories"}
	for scheme, only := range map[string][]string{"mkdir": nil, "symlink": ofPrimitive, "excl": ofPrimitive} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			locktest.Run(t, locktest.Engine{
				Fresh: func(t *testing.T) string {
					dir := filepath.Join(memory(t), strconv.FormatInt(stores.Add(1), 10))
					testkit.Must(t, os.Mkdir(dir, 0o755))
					return scheme + "://" + dir
				},
				Open: func(url string) (locks.Store, error) { return open(url), nil },
				TTL:  3 * time.Second, Blind: true, Only: only,
			})
		})
	}
}
