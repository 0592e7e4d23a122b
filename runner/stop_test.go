//go:build amd64 || arm64

package runner

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// ctrlZ is a store that has a terminal stop golock while it is asked.
type ctrlZ struct {
	slow
	told chan error // why golock gives the attempt up
}

func (s ctrlZ) Join(ctx context.Context, _ locks.Request) (locks.Ticket, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	_ = unix.Kill(os.Getpid(), unix.SIGTSTP)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	s.told <- context.Cause(ctx)
	return nil, &locks.EvictedError{} // or golock would stop now
}

// Ctrl-Z takes a golock out of the queue also if it does not know yet that it is in it.
func TestStoppedWhileItJoins(t *testing.T) {
	mayStop(t)
	store := ctrlZ{told: make(chan error, 1)}
	r := testRun(t, store, "true")
	r.Relay.DropStop() // as at a terminal
	r.Terminal, r.Wait, r.OnlyWarn = true, -1, true
	if o := r.Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that it was evicted", o)
	}
	if why := <-store.told; why != locks.ErrStandsStill {
		t.Errorf("the attempt is given up with %v", why)
	}
}
