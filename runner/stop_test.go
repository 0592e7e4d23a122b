//go:build (amd64 || arm64) && !portable

package runner

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// Ctrl-Z takes a golock out of the queue also if it does not know yet that it is in it.
func TestStoppedWhileItJoins(t *testing.T) {
	mayStop(t)
	stops := make(chan bool, 1)
	store := &played{}
	store.join = func(ctx context.Context) error {
		_ = unix.Kill(os.Getpid(), unix.SIGTSTP)
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
		}
		stops <- store.request.Hooks.StopsSoon()
		return &locks.EvictedError{} // or golock would stop now
	}
	r := testRun(t, store, "true")
	r.Relay.DropStop() // as at a terminal
	r.Terminal, r.WaitLimit, r.OnlyWarn = true, -1, true
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
	if !<-stops {
		t.Error("the store is not told that the process is about to be stopped")
	}
}
