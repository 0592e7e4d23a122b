package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"golock/locks"
	"golock/test/testkit"
)

// Concurrent histories have seeds: 1, 2, 3 ..., or those after any number for as
// long as the variable says. A seed gives the same questions; in which order they
// meet is up to the machine.
const (
	historiesVariable = "LOCKTEST_HISTORIES" // a duration for each store
	histories         = 24

	// latest is when a waiter has what is free. It is less than the third of the
	// TTL after which it would look anyhow: somebody has to tell it.
	latest     = 50 * time.Second
	historyTTL = 3 * time.Minute
)

// testConcurrent has several workers, each with stores of its own, do random
// things at the same time, and asks whether there is an order of all that
// happened, each thing somewhere between its beginning and its end, in which
// the state machine gives the same answers (Herlihy and Wing, Linearizability,
// 1990).
func testConcurrent(t *testing.T, w *world) {
	seed, more := testkit.Seed(t), moreRounds(t)
	beTold()
	rounds, events, open := 0, 0, 0
	for ; more(rounds); rounds++ {
		c := newCrowd(t, w, seed+uint64(rounds), rounds)
		c.run()
		n, decided := c.judge()
		if events += n; !decided {
			open++
		}
		c.close()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d histories from seed %d, %d events, %d not decided", rounds, seed, events, open)
}

// moreRounds reports whether there is one more history: a few in a usual run, or for
// as long as LOCKTEST_HISTORIES says.
func moreRounds(t *testing.T) func(rounds int) bool {
	text := os.Getenv(historiesVariable)
	if text == "" {
		return func(rounds int) bool { return rounds < histories }
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", historiesVariable, err)
	}
	end := time.Now().Add(span)
	return func(rounds int) bool { return rounds == 0 || time.Now().Before(end) }
}

func (c *crowd) open(lock int) locks.Store {
	s, err := c.w.engine.Open(c.urls[lock])
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *crowd) close() {
	for _, s := range append(c.stores, c.watch...) {
		s.Close()
	}
}

// now is the one clock of the history. It begins at 1, so that 0 is before all.
func (c *crowd) now() int64 { return int64(time.Since(c.began)) + 1 }

// note records an event that happened between two moments.
func (c *crowd) note(worker int, q asked, a told, call, ret int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, porcupine.Operation{ClientId: worker, Input: q, Output: a, Call: call, Return: ret})
}

// fail notes what no answer of a store may be.
func (c *crowd) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil {
		c.broken = fmt.Errorf(format, args...)
	}
}

func (c *crowd) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken != nil
}

func (c *crowd) run() {
	var workers sync.WaitGroup
	for n := range c.mix.workers {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(c.seed, uint64(n)+1))
			for range c.mix.deeds {
				if c.failed() {
					return
				}
				c.deed(n, rng)
				if c.mix.workers == 1 {
					c.list(n, rng.IntN(c.mix.locks))
				}
				if c.mix.pause > 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(c.mix.pause))))
				}
			}
		})
	}
	workers.Wait()
	c.drain()
}

// deed is one thing that a worker does.
func (c *crowd) deed(worker int, rng *rand.Rand) {
	odds := c.mix.odds
	words := []string{"join", "release", "leave", "list", "renew", "evict"}
	sum := 0
	for _, w := range words {
		sum += odds[w]
	}
	n, word := rng.IntN(sum), ""
	for _, w := range words {
		if n -= odds[w]; n < 0 {
			word = w
			break
		}
	}
	c.mu.Lock()
	var held, waiting, all []*member
	for _, m := range c.members {
		all = append(all, m)
		switch {
		case m.worker != worker:
		case m.waiting:
			waiting = append(waiting, m)
		case m.lease != nil && !m.released:
			held = append(held, m)
		}
	}
	c.mu.Unlock()
	one := func(ms []*member) *member { return ms[rng.IntN(len(ms))] }
	switch {
	case word == "release" && len(held) > 0:
		c.release(one(held))
	case word == "renew" && len(held) > 0:
		c.renew(one(held))
	case word == "leave" && len(waiting) > 0:
		c.leave(one(waiting))
	case word == "evict" && len(all) > 0:
		c.evict(worker, one(all))
	case word == "list":
		c.list(worker, rng.IntN(c.mix.locks))
	case len(held)+len(waiting) < max(2, 6/c.mix.workers):
		c.join(worker, held, rng)
	case len(held) > 0:
		c.release(one(held))
	}
}

// request makes up a request.
func (c *crowd) request(lock int, held []*member, rng *rand.Rand) (r locks.Request, q asked, stays bool) {
	q = asked{kind: joining, lock: lock}
	q.claim = locks.Claim{Weight: 1, Max: c.mix.units[rng.IntN(len(c.mix.units))]}
	if c.mix.weights && q.claim.Max > 1 && rng.IntN(2) == 0 {
		q.claim.Weight = 1 + rng.IntN(q.claim.Max)
	}
	if c.mix.priorities {
		q.claim.Priority = rng.IntN(3) - 1
	}
	q.noWait = rng.IntN(c.mix.patience) == 0
	var within []locks.Ref
	if c.kind != locks.PlainLock {
		if rng.IntN(5) == 0 {
			most := rng.IntN(3)
			q.most = &most
		}
		if rng.IntN(4) == 0 {
			q.replace = []locks.Replacement{locks.ReplaceWaiting, locks.ReplaceRunning}[rng.IntN(2)]
		}
		if rng.IntN(6) == 0 {
			for _, m := range held {
				if m.lock == lock {
					q.within, within = append(q.within, m.id), append(within, m.request.Ref)
				}
			}
		}
	}
	r = request(c.t, c.names[lock], q.claim.Max)
	r.Claim, r.NoWait, r.MaxQueue, r.Replace, r.Within = q.claim, q.noWait, q.most, q.replace, within
	r.TTL = historyTTL
	if c.mix.holds && rng.IntN(4) == 0 {
		q.hold, r.Hold = true, time.Duration(2+rng.IntN(20))*time.Millisecond
		if stays = rng.IntN(2) == 0; stays {
			r.Hold = time.Hour
		}
	}
	return r, q, stays
}

func (c *crowd) join(worker int, held []*member, rng *rand.Rand) {
	lock := rng.IntN(c.mix.locks)
	m := &member{lock: lock, worker: worker, store: c.stores[worker*c.mix.locks+lock]}
	var q asked
	m.request, q, m.stays = c.request(lock, held, rng)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	m.id = len(c.members)
	c.members = append(c.members, m)
	c.mu.Unlock()

	q.id, m.joined = m.id, c.now()
	ticket, err := m.store.Join(context.Background(), m.request)
	ret := c.now()
	var busy *locks.BusyError
	var nested *locks.NestedError
	var evicted *locks.EvictedError
	var a told
	twoSteps := false
	if err == nil {
		a.replaced = c.replaced(ticket.Replaced())
		// Who replaces a holder queues. If another holder goes meanwhile, Join gives the slot.
		// What only a hold kept is gone at once.
		twoSteps = slices.ContainsFunc(ticket.Replaced(), func(e locks.Entry) bool { return e.State == locks.Holding && !e.Ended })
	}
	switch {
	case errors.As(err, &nested):
		c.note(worker, q, told{word: "nested"}, m.joined, ret)
		return
	case errors.As(err, &busy):
		c.note(worker, q, told{word: "busy"}, m.joined, ret)
		return
	case errors.As(err, &evicted): // it had a place, or a slot, before Join was back
		c.note(worker, q, told{word: "evicted"}, m.joined, ret)
		c.ended(m, dismissed, ret)
		return
	case err != nil:
		c.fail("join %d: %w", m.id, err)
		return
	case ticket.Queued() || twoSteps:
		a.word = "queued"
		c.note(worker, q, a, m.joined, ret)
	}
	if ticket.Queued() {
		c.mu.Lock()
		m.waiting = true
		c.mu.Unlock()
		c.waits.Go(func() { c.wait(ctx, m, ticket) })
		return
	}
	l, err := ticket.Wait(ctx)
	if err != nil {
		c.fail("entry %d, granted at once: %w", m.id, err)
		return
	}
	a.word, a.slots, a.fence = "granted", l.Grant().Slots, l.Grant().Fence
	if twoSteps {
		q.kind = granting
	}
	c.note(worker, q, a, m.joined, ret)
	c.granted(m, l)
}

// replaced are the entries that were put out of the way. They are told, where
// the store sends a signal to their owners.
func (c *crowd) replaced(entries []locks.Entry) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := []int{}
	for _, e := range entries {
		for _, m := range c.members {
			if m.request.Ref == e.Ref {
				ids = append(ids, m.id)
				c.signal(m)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// signal ends the waiting of an entry as the owner does when it gets the
// store's signal.
func (c *crowd) signal(m *member) {
	if c.kind != locks.LeaseQueue {
		m.cancel()
	}
}

func (c *crowd) granted(m *member, l locks.Lease) {
	if s, ok := l.(locks.Settler); ok {
		s.Settle()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.waiting, m.lease = false, l
	if m.request.Hold > 0 && !m.stays {
		// Its end is an event that nobody makes. It cannot come sooner than that
		// after the grant; how much later is not asked here.
		const blur = 3 * time.Millisecond // stores count in milliseconds
		c.history = append(c.history, porcupine.Operation{
			ClientId: m.worker, Input: asked{kind: holdOver, lock: m.lock, id: m.id}, Output: told{},
			Call: m.joined + int64(m.request.Hold-blur), Return: forever,
		})
	}
}

// forever is the end of what nobody has seen the end of.
const forever = int64(1) << 62

func (c *crowd) wait(ctx context.Context, m *member, ticket locks.Ticket) {
	l, err := ticket.Wait(ctx)
	ret := c.now()
	var evicted *locks.EvictedError
	switch {
	case err == nil:
		g := l.Grant()
		c.note(m.worker, asked{kind: granting, lock: m.lock, id: m.id}, told{slots: g.Slots, fence: g.Fence}, m.joined, ret)
		c.granted(m, l)
	case errors.As(err, &evicted):
		c.ended(m, dismissed, ret)
	case errors.Is(err, context.Canceled):
		c.ended(m, leaving, ret)
	default:
		c.fail("entry %d, waiting: %w", m.id, err)
	}
	c.mu.Lock()
	m.waiting = false
	c.mu.Unlock()
}

// ended records that an entry has left its place without a grant. The store's
// answer is not awaited by who leaves, so the leaving ends when others see it.
func (c *crowd) ended(m *member, how kind, ret int64) {
	if c.kind == locks.LeaseQueue {
		eventually(c, fmt.Sprintf("entry %d is gone", m.id), func() bool {
			if c.failed() {
				return true
			}
			for e, err := range c.watch[m.lock].Entries(context.Background(), c.names[m.lock]) {
				if err != nil {
					c.fail("entries: %w", err)
					return true
				}
				if e.Ref == m.request.Ref {
					return false
				}
			}
			return true
		})
		ret = c.now()
	}
	c.note(m.worker, asked{kind: unseen, lock: m.lock, id: m.id}, told{}, m.joined, ret)
	call := m.joined
	if how == leaving {
		c.mu.Lock()
		call = max(call, m.left)
		c.mu.Unlock()
	}
	c.note(m.worker, asked{kind: how, lock: m.lock, id: m.id}, told{}, call, ret)
}

// leave has a waiter give up.
func (c *crowd) leave(m *member) {
	c.mu.Lock()
	if m.left == 0 {
		m.left = c.now()
	}
	c.mu.Unlock()
	m.cancel()
}

// Helper and Fatalf let eventually tell what never happened.
func (c *crowd) Helper()                           {}
func (c *crowd) Fatalf(format string, args ...any) { c.fail(format, args...) }

func (c *crowd) release(m *member) {
	c.mu.Lock()
	m.released = true
	c.mu.Unlock()
	call := c.now()
	err := m.lease.Release(context.Background())
	a := told{}
	if errors.Is(err, locks.ErrLost) {
		a.word = "lost"
	} else if err != nil {
		c.fail("release %d: %w", m.id, err)
		return
	}
	if err := m.lease.Release(context.Background()); a.word == "" && err != nil {
		c.fail("second release %d: %w", m.id, err)
	}
	c.note(m.worker, asked{kind: giving, lock: m.lock, id: m.id}, a, call, c.now())
}

func (c *crowd) renew(m *member) {
	call := c.now()
	err := m.lease.Evicted()
	if l, ok := m.lease.(locks.RenewableLease); ok {
		_, err = l.Renew(context.Background())
	}
	var evicted *locks.EvictedError
	a := told{}
	switch {
	case errors.As(err, &evicted):
		a.word = "evicted"
	case errors.Is(err, locks.ErrLost):
		a.word = "lost"
	case err != nil:
		c.fail("renew %d: %w", m.id, err)
		return
	}
	c.note(m.worker, asked{kind: renewing, lock: m.lock, id: m.id}, a, call, c.now())
}

func (c *crowd) evict(worker int, m *member) {
	e, ok := c.watch[m.lock].(locks.QueueStore)
	if !ok {
		return
	}
	call := c.now()
	err := e.Evict(context.Background(), m.request.Ref, "the model")
	a := told{}
	if errors.Is(err, locks.ErrLost) {
		a.word = "lost"
	} else if err != nil {
		c.fail("evict %d: %w", m.id, err)
		return
	}
	c.note(worker, asked{kind: evicting, lock: m.lock, id: m.id}, a, call, c.now())
	if a.word == "" {
		c.mu.Lock()
		c.signal(m)
		c.mu.Unlock()
	}
}

// list looks at a queue.
func (c *crowd) list(worker, lock int) {
	if c.kind == locks.PlainLock {
		return
	}
	a := told{holders: []seen{}, queue: []int{}}
	call := c.now()
	var entries []locks.Entry
	for e, err := range c.watch[lock].Entries(context.Background(), c.names[lock]) {
		if err != nil {
			c.fail("entries: %w", err)
			return
		}
		entries = append(entries, e)
	}
	ret := c.now()
	c.mu.Lock()
	for _, e := range entries {
		i := slices.IndexFunc(c.members, func(m *member) bool { return m.request.Ref == e.Ref })
		switch {
		case i < 0 && c.broken == nil:
			c.broken = fmt.Errorf("an entry that nobody made: %+v", e)
		case e.State == locks.Holding:
			a.holders = append(a.holders, seen{i, e.Slots, e.Ended, e.Evicted != "", !e.Ended && !e.HeldTill.IsZero()})
		case e.Evicted == "": // who was evicted may take a moment to go
			a.queue = append(a.queue, i)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(a.holders, func(a, b seen) int { return a.id - b.id })
	c.note(worker, asked{kind: listing, lock: lock, id: -1}, a, call, ret)
}

// drain gives back what is held until nobody waits any more: a slot that is
// free is given to the next, whatever has happened before.
func (c *crowd) drain() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.waits.Wait()
	}()
	for quiet := time.Now(); ; {
		c.mu.Lock()
		var held, staying []*member
		for _, m := range c.members {
			switch {
			case m.lease == nil:
			case !m.released:
				held = append(held, m)
			case m.stays:
				m.stays = false
				staying = append(staying, m)
			}
		}
		c.mu.Unlock()
		for _, m := range held {
			c.release(m)
		}
		for _, m := range staying {
			c.evict(m.worker, m)
		}
		if len(held)+len(staying) > 0 {
			quiet = time.Now()
			continue
		}
		select {
		case <-done:
			c.mu.Lock()
			rest := slices.ContainsFunc(c.members, func(m *member) bool { return m.lease != nil && (!m.released || m.stays) })
			c.mu.Unlock()
			if rest {
				continue
			}
			for _, m := range c.members {
				m.cancel()
			}
			return
		case <-time.After(time.Millisecond):
		}
		if time.Since(quiet) > latest {
			c.fail("nobody has held anything for %v, and somebody waits", latest)
			for _, m := range c.members {
				m.cancel()
			}
			<-done
			return
		}
	}
}
