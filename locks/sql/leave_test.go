//go:build integration

package sql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Who gives up leaves over the connection that it has: the server may be slow
// to let another one in, and there is no time.
func TestLeaveOverItsConnection(t *testing.T) {
	t.Parallel()
	b := postgresql().fresh(t)
	s := b.store(t)
	Take(t, s, "n")
	w := Queue(t, s, "n")
	b.listening(t, 1)
	b.server.Exec(t, "", `ALTER DATABASE "`+b.name+`" CONNECTION LIMIT 0`)
	w.Cancel()
	w.Ended()
	if !errors.Is(w.Err, context.Canceled) {
		t.Errorf("Wait: %v, want that it was cancelled", w.Err)
	}
	testkit.Eventually(t, "the place is gone", func() bool {
		return len(b.exec(t, "SELECT 1 FROM golock WHERE state='W'")) == 0
	})
}

// Who is about to be stopped has left when the waiting ends, however long the
// server takes: stopped in the midst of a step it would hold up all others.
func TestLeaveBeforeStandingStill(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		direct := b.store(t)
		Take(t, direct, "n")
		proxy := sqltest.NewProxy(t, b.server)
		s := b.behind(t, proxy)
		ctx, cancel := context.WithCancelCause(background)
		ticket, err := s.Join(ctx, NewRequest(t, "n"))
		testkit.Must(t, err)
		proxy.Freeze()
		defer time.AfterFunc(300*time.Millisecond, proxy.Thaw).Stop()
		cancel(locks.ErrStandsStill)
		if _, err := ticket.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait: %v, want that it was cancelled", err)
		}
		if n := len(List(t, direct, "n")); n != 1 {
			t.Errorf("%d entries, want only the holder's", n)
		}
	})
}
