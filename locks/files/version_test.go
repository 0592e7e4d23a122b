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
	. "golock/locks/locktest"
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
		w := Queue(t, s, "n", Priority(-9))
		w.Leave()
		Becomes(t, s, "n", 1, 0)
	}
}

// A writer that was held up until others have made and removed its version's number has
// committed nothing.
func TestSlowWriter(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		slow, s := open(url), open(url)
		slow.Keep(churned)
		Release(t, Take(t, s, "n"))
		before(slow, "write", func() {
			Take(t, s, "n")
			churn(t, url)
		})
		Refused(t, slow, "n")
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
		first := Take(t, releaser, "n")
		w := Queue(t, reader, "n")
		before(releaser, "write", func() { // of a version that grants to w
			armed.Store(true)
			testkit.Must(t, s.Evict(background, []locks.Ref{w.Ref}, "a test")[0]) // the version of that number
			<-reads
			Take(t, s, "n")
			churn(t, url)
		})
		_ = first.Release(background)
		close(goOn)
		if w.Ended(); !errors.As(w.Err, new(*locks.EvictedError)) {
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
		l := Take(t, s, "n")
		contended(slow, func() { Queue(t, s, "n", Priority(-2)) }, func() {
			Queue(t, s, "n", Priority(-1))
			Has(t, s, "n", 1, 3)
			Release(t, l)
		})
		Release(t, Queue(t, slow, "n").Granted())
	})
}

// A sweep and the next version leave nothing of one that was killed beside its request.
func TestSweepOfSteps(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, slow := openAt(t, url, "virtual", 0), openAt(t, url, "virtual", 0)
		l := Take(t, s, "n", TTL(keptTTL))
		stop := keep(t, l)
		ctx, cancel := context.WithCancel(background)
		dead := make(chan struct{})
		defer close(dead)
		contended(slow, func() { Queue(t, s, "n", TTL(keptTTL)) }, func() {
			cancel()
			<-dead
		})
		_, err := slow.Join(ctx, NewRequest(t, "n", TTL(shortTTL)))
		if err == nil {
			t.Error("it has joined")
		}
		Sweep(t, s, 0, 1)
		Has(t, s, "n", 1, 1)
		stop()
		Release(t, l)
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
		Take(t, s, "n")
		first := Queue(t, s, "n")
		before(lister, "observe", func() {
			Queue(t, s, "n")
			first.Leave()
			testkit.Eventually(t, "it is gone", func() bool { return len(List(t, s, "n")) == 2 })
		})
		for i, e := range List(t, lister, "n") {
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
		l := Take(t, other, "n")
		ctx, cancel := context.WithCancel(background)
		ticket, err := s.Join(ctx, NewRequest(t, "n", Hold(time.Hour)))
		testkit.Must(t, err)
		Release(t, l)
		full.Store(true)
		cancel()
		if _, err := ticket.Wait(ctx); err == nil {
			t.Error("granted to one that has left")
		}
		Take(t, other, "n", NoWait)
	})
}

// A replaced waiter is shown as it was, even if others are let in with the newcomer.
func TestReplacedAsItWas(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, slow := open(url), open(url)
		Take(t, s, "n")
		old := Queue(t, s, "n", Replace(locks.ReplaceWaiting))
		contended(slow, func() { Queue(t, s, "n") }, func() {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			ticket, err := s.Join(ctx, NewRequest(t, "n", Replace(locks.ReplaceWaiting)))
			testkit.Must(t, err)
			if r := ticket.Replaced(); len(r) != 1 || r[0].Ref != old.Ref || r[0].State != locks.Waiting {
				t.Errorf("replaced %+v, want the waiter", r)
			}
			cancel()
			_, _ = ticket.Wait(ctx)
		})
		Queue(t, slow, "n")
	})
}

// A waiter that was about to be granted when somebody took it out of the queue is told so.
func TestTakenOutBeforeItsGrant(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, other := openAt(t, url, "virtual", 0), openAt(t, url, "virtual", 0)
		Take(t, other, "n", TTL(shortTTL)) // it dies
		r := NewRequest(t, "n")
		ticket, err := s.Join(background, r)
		testkit.Must(t, err)
		before(s, "write", func() { testkit.Must(t, other.Attach(r.Ref).Release(background)) })
		if l, err := ticket.Wait(background); !errors.As(err, new(*locks.BusyError)) {
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
				first := Take(t, other, "n", TTL(time.Hour))
				ticket, err := s.Join(background, NewRequest(t, "n", TTL(shortTTL)))
				testkit.Must(t, err)
				time.Sleep(2 * shortTTL)
				Refused(t, other, "n") // takes it for dead
				if full.Store(isFull); !isFull {
					before(s, "commit", func() { Queue(t, other, "n", TTL(time.Hour)) })
				}
				time.AfterFunc(shortTTL, func() {
					full.Store(false)
					Release(t, first)
				})
				if l, err := ticket.Wait(background); err != nil {
					t.Errorf("Wait = %v, %v, want its place", l, err)
				}
			})
		})
	}
}
