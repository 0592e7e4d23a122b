package redis_test

import (
	"context"
	"testing"
	"time"

	"golock/locks"
)

// Who becomes the second in line is told so at once, not at its next look: what
// takes its time can be made ready then.
func TestNear(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	holder := take(t, s, "n")
	first, second := queue(t, s, "n"), queue(t, s, "n")
	ctx, cancel := context.WithCancel(background)
	ticket, err := s.Join(ctx, request(t, "n"))
	if err != nil {
		t.Fatal(err)
	}
	near, done := make(chan struct{}), make(chan struct{})
	ticket.(locks.Placed).WhenNear(func() { close(near) })
	go func() {
		defer close(done)
		_, _ = ticket.Wait(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	listening(t, server, 3)
	release(t, holder)
	l := first.granted()
	select {
	case <-near:
		t.Error("told to be near with two in front")
	default:
	}
	release(t, l)
	server.Do("CLIENT", "PAUSE", 20000, "WRITE") // nobody's look is answered
	select {
	case <-near:
	case <-time.After(10 * time.Second):
		t.Error("not told")
	}
	server.Do("CLIENT", "UNPAUSE")
	release(t, second.granted())
}
