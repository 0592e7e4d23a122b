package files_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/files"
	"golock/locks/locktest"
)

// One primitive stands for all three (TestPrimitivesTogether).
func TestConformance(t *testing.T) {
	var stores atomic.Int64
	locktest.Run(t, locktest.Engine{
		Fresh: func(t *testing.T) string {
			dir := t.TempDir() + "/" + strconv.FormatInt(stores.Add(1), 10)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return "mkdir://" + dir
		},
		Open:      func(url string) (locks.Store, error) { return files.Open(url) },
		TTL:       3 * time.Second,
		Hesitates: true,
	})
}
