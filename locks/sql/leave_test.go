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
		if err != nil {
			t.Fatal(err)
		}
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

// A waiter without a connection that has died is given the time until its next
// look, not all of its TTL. One that lives, and is called, is not hurried.
func TestCalledWithoutConnection(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		const life = time.Hour
		b := f.fresh(t)
		s := b.store(t, "waiters=0")
		holders := []locks.RenewableLease{Take(t, s, "n", Limit(2)), Take(t, s, "n", Limit(2))}
		dead, err := s.Join(background, NewRequest(t, "n", TTL(life))) // it never looks
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithCancel(background)
			cancel()
			_, _ = dead.Wait(ctx)
		}()
		left := func() time.Duration {
			for _, e := range List(t, s, "n") {
				if e.State == locks.Waiting {
					return e.Expires
				}
			}
			t.Fatal("the waiter has gone")
			return 0
		}
		if d := left(); d < life*9/10 {
			t.Errorf("before it is called it has %v, want %v", d, life)
		}
		Release(t, holders[0])
		if d := left(); d < life*9/10 {
			t.Errorf("it is not its turn yet and it has %v, want %v", d, life)
		}
		Release(t, holders[1])
		if d := left(); d < life/4 || d > life/3+time.Minute {
			t.Errorf("called it has %v, want about %v", d, life/3)
		}
		behind := Queue(t, s, "n")
		behind.Cancel() // who leaves looks after the first
		behind.Ended()
		Becomes(t, s, "n", 0, 1)
		if d := left(); d < life/4 {
			t.Errorf("called before it has %v, want about %v", d, life/3)
		}
	})
}
