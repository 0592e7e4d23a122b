//go:build integration

package redis_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Who becomes the second in line is told so at once, not at its next look: what
// takes its time can be made ready then.
func TestNear(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	holder := Take(t, s, "n")
	first, second := Queue(t, s, "n"), Queue(t, s, "n")
	ctx, cancel := context.WithCancel(background)
	near, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ticket, err := s.Join(ctx, NewRequest(t, "n", func(r *locks.Request) {
		r.Progress = func(place int) {
			if place <= 2 {
				once.Do(func() { close(near) })
			}
		}
	}))
	testkit.Must(t, err)
	go func() {
		defer close(done)
		_, _ = ticket.Wait(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	listening(t, server, 3)
	Release(t, holder)
	l := first.Granted()
	select {
	case <-near:
		t.Error("told to be near with two in front")
	default:
	}
	Release(t, l)
	server.Do("CLIENT", "PAUSE", 20000, "WRITE") // nobody's look is answered
	select {
	case <-near:
	case <-time.After(10 * time.Second):
		t.Error("not told")
	}
	server.Do("CLIENT", "UNPAUSE")
	Release(t, second.Granted())
}
