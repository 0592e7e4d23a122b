//go:build integration

package lockfile

import (
	"path/filepath"
	"testing"
)

func TestEntriesOfFcntl(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	holderAndWaiter(t, New(Fcntl, file), "s6-setlock", file, "true")
}
