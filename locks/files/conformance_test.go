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

func TestConformance(t *testing.T) {
	var stores atomic.Int64
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			locktest.Run(t, locktest.Engine{
				Fresh: func(t *testing.T) string {
					dir := filepath.Join(memory(t), strconv.FormatInt(stores.Add(1), 10))
					testkit.Must(t, os.Mkdir(dir, 0o755))
					return scheme + "://" + dir
				},
				Open: func(url string) (locks.Store, error) { return open(url), nil },
				TTL:  3 * time.Second, Blind: true,
			})
		})
	}
}
