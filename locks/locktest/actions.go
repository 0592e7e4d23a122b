package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golock/locks"
	"golock/test/testkit"
)

// step makes one random step of a worker.
func (c *workload) step(worker int, rng *rand.Rand) {
	word := c.mix.words[rng.IntN(len(c.mix.words))]
	c.mu.Lock()
	all := slices.Clone(c.members)
	var held, waiting []*member
	for _, m := range all {
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

// request makes a random request, and its input for the model. stays says that its hold lasts longer than the
// history.
func (c *workload) request(lock int, held []*member, rng *rand.Rand) (r locks.Request, in input, stays bool) {
	in = input{kind: opJoin, lock: lock}
	in.claim = locks.Claim{Weight: 1, Max: c.mix.units[rng.IntN(len(c.mix.units))]}
	if c.mix.weights && in.claim.Max > 1 && rng.IntN(2) == 0 {
		in.claim.Weight = 1 + rng.IntN(in.claim.Max)
	}
	if c.mix.priorities {
		in.claim.Priority = rng.IntN(3) - 1
	}
	in.noWait = rng.IntN(c.mix.patience) == 0
	var within []locks.Ref
	if !c.plain {
		if rng.IntN(5) == 0 {
			most := rng.IntN(3)
			in.maxQueue = &most
		}
		if rng.IntN(4) == 0 {
			in.replace = []locks.Replacement{locks.ReplaceWaiting, locks.ReplaceRunning}[rng.IntN(2)]
		}
		if rng.IntN(6) == 0 {
			for _, m := range held {
				if m.lock == lock {
					in.within, within = append(in.within, m.id), append(within, m.request.Ref)
				}
			}
		}
	}
	r = NewRequest(c.t, c.names[lock])
	r.Claim, r.NoWait, r.MaxQueue, r.Replace, r.Within = in.claim, in.noWait, in.maxQueue, in.replace, within
	r.TTL = historyTTL
	if c.mix.holds && rng.IntN(4) == 0 {
		in.hold, r.Hold = true, time.Duration(2+rng.IntN(20))*time.Millisecond
		if stays = rng.IntN(2) == 0; stays {
			r.Hold = time.Hour
		}
	}
	return r, in, stays
}

func (c *workload) join(worker int, held []*member, rng *rand.Rand) {
	lock := rng.IntN(c.mix.locks)
	m := &member{lock: lock, worker: worker, store: c.stores[worker*c.mix.locks+lock]}
	var in input
	m.request, in, m.stays = c.request(lock, held, rng)
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	m.id = len(c.members)
	c.members = append(c.members, m)
	c.mu.Unlock()

	in.id, m.joined = m.id, c.now()
	m.request.Hooks.DoLater = func(work func()) { work() }
	admission, err := m.store.Join(context.Background(), m.request)
	ret := c.now()
	switch word := outcome(err); word {
	case "":
	case "nested", "busy":
		c.record(worker, in, output{word: word}, m.joined, ret)
		return
	case "evicted": // it was evicted from its place or slot before Join returned
		c.record(worker, in, output{word: word}, m.joined, ret)
		c.ended(m, opEvicted, ret)
		return
	default:
		c.fail("join %d: %w", m.id, err)
		return
	}
	out := output{replaced: c.replaced(admission.Replaced())}
	// An entry that replaces a holder queues. If another holder leaves meanwhile, Join gives it the slot.
	// A slot that only a hold kept is free at once.
	twoSteps := slices.ContainsFunc(admission.Replaced(), func(e locks.Entry) bool {
		return e.State == locks.Holding && !e.Ended
	})
	if admission.Queued() || twoSteps {
		out.word = "queued"
		c.record(worker, in, out, m.joined, ret)
	}
	if admission.Queued() {
		c.mu.Lock()
		m.waiting = true
		c.mu.Unlock()
		c.waits.Go(func() { c.wait(ctx, m, admission) })
		return
	}
	l, err := admission.Wait(ctx)
	if err != nil {
		c.fail("entry %d, granted at once: %w", m.id, err)
		return
	}
	out.word, out.slots, out.fence = "granted", l.Grant().Slots, l.Grant().Fence
	if twoSteps {
		in.kind = opGrant
	}
	c.record(worker, in, out, m.joined, ret)
	c.granted(m, l)
}

// replaced returns the IDs of the entries that were replaced, and signals their owners where the store would.
func (c *workload) replaced(entries []locks.Entry) []int {
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
func (c *workload) signal(m *member) {
	if !c.leases {
		m.cancel()
	}
}

func (c *workload) granted(m *member, l locks.Lease) {
	c.mu.Lock()
	m.waiting, m.lease = false, l
	c.mu.Unlock()
	if m.request.Hold > 0 && !m.stays {
		// The end of a hold is an event that nobody causes. It cannot come before the hold is over; the
		// history does not say how much later it comes.
		const precision = 3 * time.Millisecond // stores count in milliseconds
		c.recordOf(m, opHoldEnd, output{}, m.joined+int64(m.request.Hold-precision), never)
	}
}

func (c *workload) wait(ctx context.Context, m *member, admission locks.Admission) {
	l, err := admission.Wait(ctx)
	ret := c.now()
	word := outcome(err)
	if ctx.Err() != nil && errors.As(err, new(*locks.OutageError)) { // the last question got no answer
		word = "canceled"
	}
	switch word {
	case "":
		g := l.Grant()
		c.recordOf(m, opGrant, output{slots: g.Slots, fence: g.Fence}, m.joined, ret)
		c.granted(m, l)
	case "evicted":
		c.ended(m, opEvicted, ret)
	case "canceled":
		c.ended(m, opLeave, ret)
	default:
		c.fail("entry %d, waiting: %w", m.id, err)
	}
	c.mu.Lock()
	m.waiting = false
	c.mu.Unlock()
}

// ended records that an entry has left its place without a grant. An entry that leaves a networked store does not
// await the answer, so the event ends when the store does not list the entry any more.
func (c *workload) ended(m *member, how kind, ret int64) {
	if c.leases {
		gone := testkit.Within(testkit.Patience, func() bool {
			_, err := m.request.Ref.In(c.entries(m.lock), nil)
			return err != nil || c.failed()
		})
		if !gone {
			c.fail("entry %d is never gone", m.id)
		}
		ret = c.now()
	}
	c.recordOf(m, opUnseen, output{}, m.joined, ret)
	call := m.joined
	if how == opLeave {
		c.mu.Lock()
		call = max(call, m.left)
		c.mu.Unlock()
	}
	c.recordOf(m, how, output{}, call, ret)
}

func (c *workload) leave(m *member) {
	c.mu.Lock()
	if m.left == 0 {
		m.left = c.now()
	}
	c.mu.Unlock()
	m.cancel()
}

func (c *workload) release(m *member) {
	c.mu.Lock()
	m.released = true
	c.mu.Unlock()
	call := c.now()
	err := ReleaseUntilAnswered(m.lease)
	if again := m.lease.Release(context.Background()); err == nil && again != nil {
		c.fail("second release %d: %w", m.id, again)
	}
	c.recordAnswer(m.worker, m, opRelease, err, call)
}

func (c *workload) renew(m *member) {
	call := c.now()
	err := m.lease.Evicted()
	if m.lease.Term().Ends() {
		err = TryRenew(m.lease)
	}
	c.recordAnswer(m.worker, m, opRenew, err, call)
}

func (c *workload) evict(worker int, m *member) {
	queue := c.watch[m.lock].Abilities().Queue
	if queue == nil {
		return
	}
	call := c.now()
	err := queue.Evict(context.Background(), []locks.Ref{m.request.Ref}, "the model")[0]
	if c.recordAnswer(worker, m, opEvict, err, call) == "" {
		c.signal(m)
	}
}

// entries returns what the store lists of a lock.
func (c *workload) entries(lock int) []locks.Entry {
	all, err := entriesOf(c.watch[lock], c.names[lock])
	if err != nil {
		c.fail("entries: %w", err)
		return nil
	}
	return all
}

func (c *workload) list(worker, lock int) {
	if c.plain {
		return
	}
	out := output{holders: []listed{}, queue: []int{}}
	call := c.now()
	entries := c.entries(lock)
	ret := c.now()
	c.mu.Lock()
	for _, e := range entries {
		i := slices.IndexFunc(c.members, func(m *member) bool { return m.request.Ref == e.Ref })
		switch {
		case i < 0 && c.broken == nil:
			c.broken = fmt.Errorf("an entry that nobody made: %+v", e)
		case e.State == locks.Holding:
			hold := !e.Ended && !e.HeldTill.IsZero()
			out.holders = append(out.holders, listed{i, e.Slots, e.Ended, e.Evicted != "", hold})
		case e.Evicted == "": // an evicted waiter may be listed for a moment
			out.queue = append(out.queue, i)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(out.holders, func(a, b listed) int { return a.id - b.id })
	c.record(worker, input{kind: opList, lock: lock, id: -1}, out, call, ret)
}
