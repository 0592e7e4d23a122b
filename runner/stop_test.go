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
	cause := make(chan error, 1)
	r := testRun(t, &played{join: func(ctx context.Context) error {
		_ = unix.Kill(os.Getpid(), unix.SIGTSTP)
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		cause <- context.Cause(ctx)
		return &locks.EvictedError{} // or golock would stop now
	}}, "true")
	r.Relay.DropStop() // as at a terminal
	r.Terminal, r.Wait, r.OnlyWarn = true, -1, true
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
	if why := <-cause; why != locks.ErrStandsStill {
		t.Errorf("the attempt is given up with %v", why)
	}
}
