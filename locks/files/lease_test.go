package files_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// A holder that was held up for longer than its term has lost, even if nobody has noticed.
func TestLateRenewalIsLost(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		var ahead atomic.Int64
		clock := func() locks.Instant { return locks.BootTime().Add(time.Duration(ahead.Load())) }
		s.SetClock("late", clock)
		l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(time.Minute))
		locktest.Renew(t, l)
		ahead.Store(int64(2 * time.Minute))
		locktest.ExpectLost(t, l)
		// Time also runs while the directory is being written.
		ahead.Store(0)
		late := open(url)
		late.SetClock("late", clock)
		l = locktest.AcquireAtOnce(t, late, "m", locktest.TTL(time.Minute))
		before(late, "signed", func() { ahead.Store(int64(2 * time.Minute)) })
		locktest.ExpectLost(t, l)
	})
}

// A directory that does not answer holds up no caller.
func TestHangingDirectory(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		l := locktest.AcquireAtOnce(t, s, "n")
		free, hangs := make(chan struct{}), make(chan struct{}, 1)
		var hang atomic.Bool
		s.At(func(string) {
			if hang.Load() {
				hangs <- struct{}{}
				<-free
			}
		})
		hang.Store(true)
		began := time.Now()
		ctx, cancel := context.WithCancel(background)
		go func() {
			<-hangs
			cancel()
		}()
		if _, err := l.Renew(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, locks.ErrLost) {
			t.Errorf("Renew = %v", err)
		}
		if _, err := l.Renew(ctx); !errors.Is(err, context.Canceled) { // while that one hangs
			t.Errorf("second Renew = %v", err)
		}
		ctx, cancel = context.WithCancel(background)
		go func() {
			<-hangs
			cancel()
		}()
		if _, err := s.Join(ctx, locktest.NewRequest(t, "m")); !errors.As(err, new(*locks.OutageError)) {
			t.Errorf("Join = %v", err)
		}
		testkit.Lasted(t, began, 0, testkit.Patience)
		hang.Store(false)
		close(free)
		locktest.Renew(t, l)
		testkit.Eventually(t, "what came too late is gone", func() bool { return len(locktest.List(t, open(url), "m")) == 0 })
	})
}

// A record that cannot be written just now is no lost lease.
func TestFaultsOfARenewal(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		l := locktest.AcquireAtOnce(t, s, "n")
		record := testkit.OnlyFile(t, directory(t, url)+"/*/data/*")
		aside := record + ".aside"
		testkit.Must(t, os.Rename(record, aside))
		testkit.Must(t, os.Symlink(aside, record))
		_ = locktest.ExpectRenewError(t, l)
		testkit.Must(t, os.Rename(aside, record))
		locktest.Renew(t, l)
	})
}

// A lease is renewed on the machine that has taken it.
func TestAttach(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		l := locktest.AcquireAtOnce(t, open(url), "n")
		elsewhere := open(url)
		elsewhere.SetClock("elsewhere", locks.BootTime)
		_ = locktest.ExpectRenewError(t, elsewhere.Attach(l.Grant().Ref))
	})
}

// On a full disk an entry that leaves says so in its record, which needs no room: what it
// had is free for the first one that can make a version.
func TestFullDisk(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(url), open(url)
		var full atomic.Bool
		var refused atomic.Int64
		s.Fill(&full, &refused)
		l := locktest.AcquireAtOnce(t, s, "n")
		w := locktest.Enqueue(t, s, "n")
		behind := locktest.Enqueue(t, s, "n", locktest.Priority(-1))
		full.Store(true)
		w.Leave()
		locktest.Release(t, l)
		last := refused.Load()
		testkit.Eventually(t, "the one behind finds no room, either", func() bool { return refused.Load() > last })
		full.Store(false)
		locktest.Release(t, behind.ExpectGrant())
		locktest.AcquireAtOnce(t, other, "n", locktest.NoWait)
		locktest.ExpectEntries(t, other, "n", locktest.Counts{Holding: 1})
	})
}

// It is no error if another process removes the leaving entry before it meets the full disk.
func TestFullDiskLater(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(url), open(url)
		var full atomic.Bool
		s.Fill(&full, new(atomic.Int64))
		l := locktest.AcquireAtOnce(t, s, "n")
		full.Store(true)
		before(s, "write", func() { locktest.Release(t, locktest.AcquireAtOnce(t, other, "n", locktest.NoWait)) })
		locktest.Release(t, l)
	})
}

// A waiter that finds an older version than it has seen is not told that somebody took it
// out of the queue: the name is being removed.
func TestRemovedVersion(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(url)
		locktest.AcquireAtOnce(t, s, "n")
		admission, err := s.Join(background, locktest.NewRequest(t, "n"))
		testkit.Must(t, err)
		testkit.Must(t, os.RemoveAll(strings.TrimSuffix(latest(t, url), "/state")))
		_, err = admission.Wait(background)
		locktest.ExpectError(t, err, "was removed while it was in use")
	})
}
