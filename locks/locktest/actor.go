package locktest

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// actor is what a peer does, in a process of its own or in a goroutine: it joins, reports, and releases at its
// last order.
type actor struct {
	open    func(url string) (locks.Store, error)
	next    func(any) error // reads the next order; an error is the end of the peer
	say     func(report)
	holding chan<- locks.Lease // gets the lease; has room for it
}

// act does what the orders say, until there are no more. ctx ends the waiting for a slot.
func (a *actor) act(ctx context.Context) {
	err := a.obey(ctx)
	if err != nil {
		a.say(report{State: outcome(err), Text: err.Error()})
	}
	if err == nil || outcome(err) == "evicted" { // the peer lives on without its slot or place
		for a.next(new(order)) == nil {
		}
	}
}

func (a *actor) obey(ctx context.Context) error {
	var o order
	if err := a.next(&o); err != nil {
		return err
	}
	store, err := a.open(o.URL)
	if err != nil {
		return err
	}
	admission, err := store.Join(context.Background(), o.Request)
	if err != nil {
		return err
	}
	if admission.Queued() {
		a.say(report{State: "queued"})
	}
	lease, err := admission.Wait(ctx)
	if err != nil {
		return err
	}
	g := lease.Grant()
	a.say(report{State: "granted", Slots: g.Slots, Fence: g.Fence})
	stop := func() {}
	if lease.Term().Ends() {
		stop = KeepRenewed(lease, func(err error) { a.say(report{State: "evicted", Text: err.Error()}) })
	}
	defer stop()
	a.holding <- lease
	for o.Heir = true; o.Heir; {
		o = order{}
		if a.next(&o) != nil {
			return nil
		}
		if o.Heir {
			pid, err := testkit.SpawnHeir(lease.Files())
			if err != nil {
				return err
			}
			a.say(report{State: "heir", Heir: pid})
		}
	}
	stop()
	if err := ReleaseUntilAnswered(lease); err != nil {
		return errors.New("release: " + err.Error()) // no outcome that a test expects
	}
	a.say(report{State: "released"})
	return nil
}

// teller is how a test talks to a peer. testkit.Child implements it for a process.
type teller interface {
	Tell(order)
	Hear() report
	Silent(time.Duration)
	Kill()
}

// goroutine is a peer in the test's process.
type goroutine struct {
	t       *testing.T
	orders  chan order
	reports chan report
	kill    func()
	ended   chan struct{} // closed when the goroutine has ended
}

// startGoroutine starts a peer that ends with the test.
func startGoroutine(t *testing.T, e Engine) *goroutine {
	ctx, cancel := context.WithCancel(context.Background())
	g := &goroutine{t: t, orders: make(chan order), reports: make(chan report, 16), ended: make(chan struct{})}
	var mu sync.Mutex
	var store locks.Store
	isKilled := false
	a := actor{say: func(r report) { g.reports <- r }, holding: make(chan locks.Lease, 1)}
	a.open = func(url string) (s locks.Store, err error) {
		mu.Lock()
		defer mu.Unlock()
		store, err = e.Open(url)
		if err == nil && isKilled {
			e.Kill(store)
		}
		return store, err
	}
	a.next = func(o any) error {
		next, isOpen := <-g.orders
		if !isOpen {
			return io.EOF
		}
		*o.(*order) = next
		return nil
	}
	g.kill = sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		isKilled = true
		if store != nil {
			e.Kill(store)
		}
		cancel()
		close(g.orders)
	})
	go func() {
		defer close(g.ended)
		a.act(ctx)
	}()
	t.Cleanup(g.Kill)
	return g
}

// Tell implements teller.
func (g *goroutine) Tell(o order) { g.orders <- o }

// Hear implements teller.
func (g *goroutine) Hear() (r report) {
	g.t.Helper()
	select {
	case r = <-g.reports:
	case <-time.After(testkit.Patience):
		g.t.Fatal("a peer does not answer")
	}
	return r
}

// Silent implements teller.
func (g *goroutine) Silent(d time.Duration) {
	g.t.Helper()
	select {
	case r := <-g.reports:
		g.t.Fatalf("a peer answers too early: %+v", r)
	case <-time.After(d):
	}
}

// Kill implements teller.
func (g *goroutine) Kill() {
	g.kill()
	<-g.ended
}
