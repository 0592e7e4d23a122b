package files_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/files"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// churned is how many versions are kept where churn is called: all stores must agree.
const churned = 4

// churn makes so many versions that the earlier ones are removed.
func churn(t *testing.T, url string) {
	t.Helper()
	s := open(url)
	s.Keep(churned)
	for range 2 * churned {
		w := locktest.Enqueue(t, s, "n", locktest.Priority(-9))
		w.Leave()
		locktest.AwaitEntries(t, s, "n", locktest.Counts{Holding: 1})
	}
}

// A writer that was held up until others have made and removed its version's number has
// committed nothing.
func TestSlowWriter(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		slow, s := open(url), open(url)
		slow.Keep(churned)
		locktest.Release(t, locktest.AcquireAtOnce(t, s, "n"))
		before(slow, "write", func() {
			locktest.AcquireAtOnce(t, s, "n")
			churn(t, url)
		})
		locktest.ExpectBusy(t, slow, "n")
	})
}

// A reader that was held up may read what another process, that was held up too, has made
// anew of the version's number.
func TestSlowReader(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, releaser, reader := open(url), open(url), open(url)
		reader.Keep(churned)
		var armed atomic.Bool
		reads, goOn := make(chan struct{}), make(chan struct{})
		reader.At(func(step string) {
			if step == "read" && armed.CompareAndSwap(true, false) {
				close(reads)
				<-goOn
			}
		})
		first := locktest.AcquireAtOnce(t, releaser, "n")
		w := locktest.Enqueue(t, reader, "n")
		before(releaser, "write", func() { // of a version that grants to w
			armed.Store(true)
			testkit.Must(t, s.Evict(background, []locks.Ref{w.Ref}, "a test")[0]) // the version of that number
			<-reads
			locktest.AcquireAtOnce(t, s, "n")
			churn(t, url)
		})
		_ = first.Release(background)
		close(goOn)
		if w.AwaitEnd(); !errors.As(w.Err, new(*locks.EvictedError)) {
			t.Errorf("Wait = %v, %v, want that it was evicted", w.Lease, w.Err)
		}
	})
}

// contended has a store lose its first commit to one of f, and stop when it has put its
// request beside the versions, for g.
func contended(s *files.Store, f, g func()) {
	var lost, requested bool
	s.At(func(step string) {
		switch {
		case step == "commit" && !lost:
			lost = true
			f()
		case step == "request":
			requested = true
		case step == "list" && requested:
			requested = false
			g()
		}
	})
}

// An entry that others let into the queue while it joined has waited, even if it was
// granted before it knew.
func TestLetInThenGranted(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, slow := open(url), open(url)
		l := locktest.AcquireAtOnce(t, s, "n")
		contended(slow, func() { locktest.Enqueue(t, s, "n", locktest.Priority(-2)) }, func() {
			locktest.Enqueue(t, s, "n", locktest.Priority(-1))
			locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 3})
			locktest.Release(t, l)
		})
		locktest.Release(t, locktest.Enqueue(t, slow, "n").ExpectGrant())
	})
}

// A sweep and the next version leave nothing of one that was killed beside its request.
func TestSweepOfSteps(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, slow := openAt(t, url, "virtual", 0), openAt(t, url, "virtual", 0)
		l := locktest.AcquireAtOnce(t, s, "n", locktest.TTL(keptTTL))
		stop := keep(t, l)
		ctx, cancel := context.WithCancel(background)
		dead := make(chan struct{})
		defer close(dead)
		contended(slow, func() { locktest.Enqueue(t, s, "n", locktest.TTL(keptTTL)) }, func() {
			cancel()
			<-dead
		})
		_, err := slow.Join(ctx, locktest.NewRequest(t, "n", locktest.TTL(shortTTL)))
		if err == nil {
			t.Error("it has joined")
		}
		locktest.ExpectSwept(t, s, 0, 1)
		locktest.ExpectEntries(t, s, "n", locktest.Counts{Holding: 1, Waiting: 1})
		stop()
		locktest.Release(t, l)
		left, err := filepath.Glob(directory(t, url) + "/*/join.*")
		if len(left) > 0 || err != nil {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// A list is of one moment: an entry that was in the state that was read may have left when
// its record is read.
func TestListOfOneMoment(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, lister := open(url), open(url)
		locktest.AcquireAtOnce(t, s, "n")
		first := locktest.Enqueue(t, s, "n")
		before(lister, "observe", func() {
			locktest.Enqueue(t, s, "n")
			first.Leave()
			testkit.Eventually(t, "it is gone", func() bool { return len(locktest.List(t, s, "n")) == 2 })
		})
		for i, e := range locktest.List(t, lister, "n") {
			if e.Ref == first.Ref {
				t.Errorf("entry %d is listed, and was gone before", i)
			}
		}
	})
}

// An entry that leaves before it knows of its grant leaves no hold, even if the disk has no
// room for a version.
func TestNoHoldOfOneThatLeaves(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(url), open(url)
		var full atomic.Bool
		s.Fill(&full, new(atomic.Int64))
		l := locktest.AcquireAtOnce(t, other, "n")
		ctx, cancel := context.WithCancel(background)
		admission, err := s.Join(ctx, locktest.NewRequest(t, "n", locktest.Hold(time.Hour)))
		testkit.Must(t, err)
		locktest.Release(t, l)
		full.Store(true)
		cancel()
		if _, err := admission.Wait(ctx); err == nil {
			t.Error("granted to one that has left")
		}
		locktest.AcquireAtOnce(t, other, "n", locktest.NoWait)
	})
}

// A replaced waiter is shown as it was, even if others are let in with the newcomer.
func TestReplacedAsItWas(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, slow := open(url), open(url)
		locktest.AcquireAtOnce(t, s, "n")
		old := locktest.Enqueue(t, s, "n", locktest.Replace(locks.ReplaceWaiting))
		contended(slow, func() { locktest.Enqueue(t, s, "n") }, func() {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			admission, err := s.Join(ctx, locktest.NewRequest(t, "n", locktest.Replace(locks.ReplaceWaiting)))
			testkit.Must(t, err)
			if r := admission.Replaced(); len(r) != 1 || r[0].Ref != old.Ref || r[0].State != locks.Waiting {
				t.Errorf("replaced %+v, want the waiter", r)
			}
			cancel()
			_, _ = admission.Wait(ctx)
		})
		locktest.Enqueue(t, slow, "n")
	})
}

// A waiter that was about to be granted when somebody took it out of the queue is told so.
func TestTakenOutBeforeItsGrant(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, other := openAt(t, url, "virtual", 0), openAt(t, url, "virtual", 0)
		locktest.AcquireAtOnce(t, other, "n", locktest.TTL(shortTTL)) // it dies
		r := locktest.NewRequest(t, "n")
		admission, err := s.Join(background, r)
		testkit.Must(t, err)
		before(s, "write", func() { testkit.Must(t, other.Attach(r.Ref).Release(background)) })
		if l, err := admission.Wait(background); !errors.As(err, new(*locks.BusyError)) {
			t.Errorf("Wait = %v, %v, want that it was taken out", l, err)
		}
	})
}

// A waiter that was taken for dead rejoins, even if others make versions meanwhile or the
// disk is full at first.
func TestRejoinsLater(t *testing.T) {
	for _, isFull := range []bool{false, true} {
		t.Run(fmt.Sprint("full ", isFull), func(t *testing.T) {
			virtually(t, func(t *testing.T, url string) {
				s, other := openAt(t, url, "virtual", 0), openAt(t, url, "virtual", 0)
				var full atomic.Bool
				s.Fill(&full, new(atomic.Int64))
				first := locktest.AcquireAtOnce(t, other, "n", locktest.TTL(time.Hour))
				admission, err := s.Join(background, locktest.NewRequest(t, "n", locktest.TTL(shortTTL)))
				testkit.Must(t, err)
				time.Sleep(2 * shortTTL)
				locktest.ExpectBusy(t, other, "n") // takes it for dead
				if full.Store(isFull); !isFull {
					before(s, "commit", func() { locktest.Enqueue(t, other, "n", locktest.TTL(time.Hour)) })
				}
				time.AfterFunc(shortTTL, func() {
					full.Store(false)
					locktest.Release(t, first)
				})
				if l, err := admission.Wait(background); err != nil {
					t.Errorf("Wait = %v, %v, want its place", l, err)
				}
			})
		})
	}
}
