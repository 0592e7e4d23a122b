//go:build integration

package local

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"golock/locks/locktest"
	"golock/test/testkit"
)

// A lock in the mirror of a directory is none in the directory.
func TestMirrorIsRefused(t *testing.T) {
	testkit.NeedRoot(t)
	origin, mirror := t.TempDir(), t.TempDir()
	testkit.Output(t, "", testkit.Need(t, "bindfs"), origin, mirror)
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(mirror, 0)) })
	_, err := New(mirror).Join(background, locktest.NewRequest(t, "x", locktest.Limit(1)))
	if err == nil || !strings.Contains(err.Error(), "is on fuse") {
		t.Errorf("in the mirror: %v", err)
	}
	locktest.Release(t, locktest.AcquirePlain(t, New(origin), 1))
}
