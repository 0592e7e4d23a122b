package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"golock/locks"
)

// How long random concurrent histories are tried, and with which seed they
// begin. A seed gives the same questions; in which order they meet is up to the
// machine.
const (
	historiesVariable = "GOLOCK_TEST_HISTORIES"      // a duration for each store
	seedVariable      = "GOLOCK_TEST_HISTORIES_SEED" // a number
	historiesFor      = 2 * time.Second
	verdictLimit      = 5 * time.Second // for the judgement of one history: it is a search

	// latest is when a waiter has what is free. It is less than the third of the
	// TTL after which it would look anyhow: somebody has to tell it.
	latest = 6 * time.Second
)

// testConcurrent has several workers, each with stores of its own, do random
// things at the same time, and asks whether there is an order of all that
// happened, each thing somewhere between its beginning and its end, in which
// the state machine gives the same answers (Herlihy and Wing, Linearizability,
// 1990).
func testConcurrent(t *testing.T, w *world) {
	span, seed := historiesFor, rand.Uint64()
	if text := os.Getenv(historiesVariable); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", historiesVariable, err)
		}
	}
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	beTold()

	began, rounds, events, open := time.Now(), 0, 0, 0
	for ; rounds == 0 || time.Since(began) < span; rounds++ {
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
	t.Logf("%d histories, %d events, %d not decided", rounds, events, open)
}

// mix is what a crowd does, and how often.
type mix struct {
	workers, deeds, locks int
	pause                 time.Duration // between two deeds, at most
	units                 []int         // the maxima that are asked for
	weights, priorities   bool
	holds                 bool
	patience              int // one in so many does not wait
	odds                  map[string]int
}

// crowd makes one history.
type crowd struct {
	t        *testing.T
	w        *world
	can      locks.Traits
	plain    bool
	promises promises
	seed     uint64
	mix      mix
	names    []string
	urls     []string
	stores   []locks.Store // by worker and name
	watch    []locks.Store // by name
	began    time.Time

	mu      sync.Mutex // guards what follows
	members []*member
	history []porcupine.Operation
	broken  error
	waits   sync.WaitGroup
}

// member is one entry.
type member struct {
	id, lock, worker int
	request          locks.Request
	store            locks.Store
	joined           int64 // when it began to
	cancel           context.CancelFunc

	// Guarded by the crowd's mutex.
	waiting  bool
	left     int64 // when it was told to leave; 0: it was not
	lease    locks.Lease
	released bool
	stays    bool // after its release, for longer than the history
}

func newCrowd(t *testing.T, w *world, seed uint64, round int) *crowd {
	c := &crowd{t: t, w: w, seed: seed, began: time.Now()}
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(all ...int) int { return all[rng.IntN(len(all))] }
	first, err := w.engine.Open(w.url)
	if err != nil {
		t.Fatal(err)
	}
	c.can = first.Traits()
	plain, isPlain := first.(locks.Plain)
	first.Close()
	m := mix{
		workers: pick(2, 3, 4), deeds: pick(4, 8, 12), locks: pick(1, 1, 2),
		pause: time.Duration(pick(0, 0, 50, 500)) * time.Microsecond, patience: pick(2, 4, 10),
		odds: map[string]int{"join": 4, "release": 4, "leave": 1, "list": 1},
	}
	switch rng.IntN(4) {
	case 0:
		m.units = []int{1}
	case 1:
		m.units = []int{0, 0, 1}
	case 2:
		m.units = []int{pick(2, 3)}
	default:
		m.units, m.weights = []int{0, 1, 2, 3, 4}, true
	}
	m.priorities, m.holds = rng.IntN(2) == 0, c.can.Hold && rng.IntN(4) == 0
	if c.can.Queue {
		m.odds["evict"], m.odds["renew"] = pick(0, 1), 1
	}
	if c.plain = isPlain; isPlain {
		lacks := plain.Lacks()
		m.weights, m.priorities = false, false
		switch {
		case lacks.Max != "":
			m.units = []int{0, 1}
		case lacks.Shared != "": // everybody names the same
			m.units = []int{pick(1, 1, 2, 3)}
		}
	}
	c.mix = m
	c.promises = promises{unordered: !c.can.Queue, hesitant: w.engine.Hesitates, scanning: w.engine.Hesitates || c.can.Inherits}
	if isPlain {
		c.promises.searching, c.promises.sleepers = m.units[0] > 1, true
	}
	for i := range m.locks {
		url := w.url
		if isPlain && round+i > 0 { // its URL is the lock
			url = w.engine.Fresh(t)
		}
		c.urls = append(c.urls, url)
		c.names = append(c.names, fmt.Sprintf("history %d, name %d", round, i))
		c.watch = append(c.watch, c.open(i))
	}
	for range m.workers {
		for i := range m.locks {
			c.stores = append(c.stores, c.open(i))
		}
	}
	return c
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
	case len(held)+len(waiting) < 2:
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
	if c.can.Queue {
		if rng.IntN(5) == 0 {
			most := rng.IntN(3)
			q.most = &most
		}
		if rng.IntN(4) == 0 && !c.promises.hesitant {
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
	if r, ok := ticket.(locks.Replacer); ok && err == nil {
		a.replaced = c.replaced(r.Replaced())
	}
	switch {
	case errors.As(err, &nested):
		c.note(worker, q, told{word: "nested"}, m.joined, ret)
		return
	case errors.As(err, &busy):
		c.note(worker, q, told{word: "busy"}, m.joined, ret)
		return
	case errors.As(err, &evicted): // it had a place before Join was back
		c.note(worker, q, told{word: "queued"}, m.joined, ret)
		c.ended(m, dismissed, ret)
		return
	case err != nil:
		c.fail("join %d: %w", m.id, err)
		return
	case ticket.Queued() || c.promises.hesitant:
		a.word = "queued"
		c.note(worker, q, a, m.joined, ret)
		if c.promises.hesitant && q.most != nil && ticket.Queued() {
			c.note(worker, asked{kind: staying, lock: lock, id: m.id, most: q.most}, told{}, m.joined, ret)
		}
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
	if c.promises.hesitant {
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
	if !c.can.Leased {
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
	if c.can.Leased {
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
	c.note(m.worker, asked{kind: giving, lock: m.lock, id: m.id}, a, call, c.now())
}

func (c *crowd) renew(m *member) {
	call := c.now()
	var err error
	switch l := m.lease.(type) {
	case locks.Leased:
		_, err = l.Renew(context.Background())
	case locks.Marked:
		err = l.Evicted()
	default:
		return
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
	e, ok := c.watch[m.lock].(locks.Evicter)
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

// list looks at a line. Where a look is no single step it proves nothing.
func (c *crowd) list(worker, lock int) {
	if c.plain || c.promises.hesitant {
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
			a.holders = append(a.holders, seen{i, e.Slots, e.Ended})
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

// rank tells each grant how many come before it by their fences, which is where
// it must stand, and which slots were given back, or taken, while it was made.
func rank(history []porcupine.Operation, of promises) {
	var grants []*porcupine.Operation
	slots := map[int][]int{}
	for i := range history {
		o := &history[i]
		q, a := o.Input.(asked), o.Output.(told)
		if q.kind == granting || (q.kind == joining && a.word == "granted") {
			grants, slots[q.id] = append(grants, o), a.slots
		}
	}
	for i := range history {
		turned, q := &history[i], history[i].Input.(asked)
		if !of.hesitant || q.kind != joining || turned.Output.(told).word != "busy" {
			continue
		}
		for _, o := range history {
			p, a := o.Input.(asked), o.Output.(told)
			if p.lock == q.lock && p.kind == joining && p.id != q.id && p.most != nil && a.word == "busy" && o.Call <= turned.Return && turned.Call <= o.Return {
				q.passing++
			}
		}
		turned.Input = q
	}
	for _, g := range grants {
		q, a := g.Input.(asked), g.Output.(told)
		if q.rank = 0; of.unordered || of.hesitant {
			q.rank = -1
		}
		for _, o := range grants {
			if q.rank >= 0 && o.Input.(asked).lock == q.lock && o.Output.(told).fence < a.fence {
				q.rank++
			}
		}
		for _, o := range history {
			p := o.Input.(asked)
			moves := p.kind == giving || p.kind == holdOver || p.kind == evicting || (of.hesitant && p.id != q.id)
			if of.scanning && moves && p.lock == q.lock && o.Call <= g.Return && g.Call <= o.Return {
				q.fading = append(q.fading, slots[p.id]...)
			}
		}
		g.Input = q
	}
}

// machine is the state machine of several names for the checker.
func machine(names int, of promises) porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			parts = make([][]porcupine.Operation, names)
			for _, o := range all {
				lock := o.Input.(asked).lock
				parts[lock] = append(parts[lock], o)
			}
			return parts
		},
		Init: func() any { return line{promises: of} },
		Step: func(state, q, a any) (bool, any) {
			next, ok := state.(line).after(q.(asked), a.(told))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a.(line).key() == b.(line).key() },
		Hash:              func(a any) uint64 { return a.(line).hash() },
		DescribeOperation: func(q, a any) string { return strings.TrimSpace(fmt.Sprintf("%v: %v", q, a)) },
		DescribeState:     func(state any) string { return state.(line).String() },
	}
}

// decide says whether a history is one of the state machine's.
func decide(model porcupine.Model, history []porcupine.Operation, of promises) porcupine.CheckResult {
	rank(history, of)
	// What nobody has seen is rarely needed, and makes the search long.
	sight := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool { return o.Input.(asked).kind == unseen })
	result := porcupine.CheckOperationsTimeout(model, sight, verdictLimit)
	if result == porcupine.Illegal && len(sight) < len(history) {
		result = porcupine.CheckOperationsTimeout(model, history, verdictLimit)
	}
	return result
}

// judge demands that the history is one of the state machine's. It returns how
// many events there were, and whether it came to a verdict in time.
func (c *crowd) judge() (events int, decided bool) {
	model := machine(c.mix.locks, c.promises)
	result := decide(model, c.history, c.promises)
	if result != porcupine.Illegal && c.broken == nil {
		return len(c.history), result == porcupine.Ok
	}
	c.t.Errorf("%s=%d: %s", seedVariable, c.seed, c.verdict(result))
	if result == porcupine.Illegal {
		_, info := porcupine.CheckOperationsVerbose(model, c.history, verdictLimit)
		c.t.Log(c.furthest(info))
		if f, err := os.CreateTemp("", "golock-history-*.html"); err == nil {
			defer f.Close()
			if porcupine.Visualize(model, info, f) == nil {
				c.t.Logf("drawn in %s", f.Name())
			}
		}
	}
	return len(c.history), true
}

// furthest tells how far an order can go, and what cannot follow.
func (c *crowd) furthest(info porcupine.LinearizationInfo) string {
	var b strings.Builder
	for lock, orders := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, o := range orders {
			if len(o) > len(longest) {
				longest = o
			}
		}
		state, done := line{promises: c.promises}, map[string]bool{}
		fmt.Fprintf(&b, "lock %d, as far as it goes:", lock)
		for _, o := range longest {
			q, a := o.Input.(asked), o.Output.(told)
			done[fmt.Sprint(q, a, o.Call)] = true
			state, _ = state.after(q, a)
			fmt.Fprintf(&b, "\n    %v: %v   => %v", q, a, state)
		}
		b.WriteString("\n  and not in it:")
		for _, o := range c.history {
			if q, a := o.Input.(asked), o.Output.(told); q.lock == lock && !done[fmt.Sprint(q, a, o.Call)] {
				fmt.Fprintf(&b, "\n    from %d us: %v: %v", o.Call/1000, q, a)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// verdict tells what is wrong, and the whole history.
func (c *crowd) verdict(result porcupine.CheckResult) string {
	var b strings.Builder
	switch {
	case c.broken != nil:
		fmt.Fprintf(&b, "%v (the history is %s)", c.broken, result)
	default:
		b.WriteString("there is no order in which this could have happened one after the other")
	}
	slices.SortStableFunc(c.history, func(a, b porcupine.Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
	for _, o := range c.history {
		until := strconv.FormatInt(o.Return/1000, 10)
		if o.Return == forever {
			until = "..."
		}
		fmt.Fprintf(&b, "\n%8d to %8s us  lock %d  worker %d  %v: %v", o.Call/1000, until, o.Input.(asked).lock, o.ClientId, o.Input, o.Output)
	}
	return b.String()
}
