package memory

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/owner"
	"golock/locks/queue"
)

// Table has the queues of all names. Each step reads one queue, decides, and changes it, under the mutex.
type Table struct {
	// Faults may be set before the table is used.
	Faults Faults

	// Quarantine is how long the table grants nothing after Lose.
	Quarantine time.Duration

	mu            sync.Mutex // guards what follows
	queues        map[locks.Key]*lock
	epoch         int64
	quarantineEnd locks.Instant
}

// lock is the queue of a name.
type lock struct {
	name    string
	counter int64
	rows    map[string]*row
}

// row is one entry as the table keeps it. It is never Offered: a waiter that is woken asks for what is free.
type row struct {
	queue.Entry
	owner   owner.Owner
	ttl     time.Duration
	hold    time.Duration // the hold that begins with the grant
	since   locks.Instant // when it began to wait or to hold
	ends    locks.Instant // the end of its lease; of a tombstone, when it was made
	due     locks.Instant // when a waiter counts as absent
	holdEnd locks.Instant // the end of its hold; 0 if there is none
	wake    chan struct{}
}

// tombstoneAge is how long a tombstone is kept.
const tombstoneAge = 10 * time.Minute

// abilities say that the table can wake all waiters.
var abilities = queue.Abilities{Wakes: locks.MaxUnits}

// Lose makes the table forget everything, as a server without a disk does when it is restarted.
func (t *Table) Lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queues = nil
	t.epoch++
	t.quarantineEnd = now().Add(t.Quarantine)
}

// queueOf returns the queue of a lock. name is empty if the caller knows only the key.
func (t *Table) queueOf(key locks.Key, name string) *lock {
	if t.queues == nil {
		t.queues = map[locks.Key]*lock{}
	}
	l := t.queues[key]
	if l == nil {
		l = &lock{rows: map[string]*row{}}
		t.queues[key] = l
	}
	if name != "" {
		l.name = name
	}
	return l
}

// until is when the time of a row is over: its lease and, if it has slots, its hold.
func (r *row) until() locks.Instant {
	switch r.State {
	case queue.Tombstone:
		return r.ends.Add(tombstoneAge)
	case queue.Waiting:
		return r.ends
	}
	return max(r.ends, r.holdEnd)
}

// dropExpired removes the rows whose time is over. What is left of a hold that is over is a tombstone: a request of
// its owner may still be on its way.
func (l *lock) dropExpired(now locks.Instant) {
	for _, r := range l.rows {
		if r.State == queue.Ended && r.until() <= now {
			r.Entry = queue.Entry{ID: r.ID, State: queue.Tombstone}
			r.ends = now
		}
	}
	maps.DeleteFunc(l.rows, func(_ string, r *row) bool { return r.until() <= now })
}

// view shows a decision the queue at a moment.
func (t *Table) view(l *lock, id string, now locks.Instant) (v queue.View) {
	// Tickets and fences follow the clock, so that they grow although the table has forgotten the last ones.
	v.Counter = max(l.counter, int64(now)/1000)
	v.Epoch = t.epochName()
	v.QuarantineLeft = max(t.quarantineEnd.Sub(now), 0)
	v.Quarantined = v.QuarantineLeft > 0
	for _, r := range l.rows {
		if r.until() <= now {
			continue
		}
		e := r.Entry
		e.Absent = r.due <= now
		if e.State == queue.Holding && r.ends <= now {
			e.State = queue.Ended
		}
		e.HoldLeft = max(r.holdEnd.Sub(now), 0)
		e.Left = r.until().Sub(now)
		switch e.State {
		case queue.Waiting:
			e.Left = r.due.Sub(now)
			v.Waiters = append(v.Waiters, e)
		case queue.Holding, queue.Ended:
			v.Holders = append(v.Holders, e)
		}
		if e.ID == id {
			v.Caller = &e
		}
	}
	slices.SortFunc(v.Waiters, func(a, b queue.Entry) int { return cmp.Or(a.Claim.Compare(b.Claim), cmp.Compare(a.ID, b.ID)) })
	slices.SortFunc(v.Holders, func(a, b queue.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	v.Total = len(v.Waiters)
	for _, w := range v.Waiters {
		if w.Replace != locks.ReplaceNone {
			v.Replaceable = append(v.Replaceable, w)
		}
	}
	return v
}

func (t *Table) epochName() string { return strconv.FormatInt(t.epoch, 10) }

// step makes a step of an entry.
func (t *Table) step(e *entry, q queue.Question) (a reply) {
	now := now()
	l := t.queueOf(e.ref.Key, e.name)
	l.dropExpired(now)
	v := t.view(l, q.Entry.ID, now)
	d := t.Faults.decide(v, q)
	a.Outcome, a.Epoch, a.TTL, a.after = d.Outcome, v.Epoch, e.ttl, d.Entry
	a.Holders, a.Replaced = t.show(l, e.ref.Key, d.Holders, now), t.show(l, e.ref.Key, d.Replaced, now)
	if d.Fits {
		a.Quarantine, a.QuarantineCause = v.QuarantineLeft, "the table has forgotten everything"
	}
	if d.Verdict == queue.Queued {
		w := queue.Waiter{Place: d.Place, Turns: d.Place, TTL: e.ttl, IsWoken: true, Fits: d.Fits, IsDue: d.Due == q.Entry.ID}
		a.Nap = abilities.AfterStep(&v, w)
	}
	t.apply(l, e, q.Step, &d, a.Nap.Overdue, now)
	if r := l.rows[q.Entry.ID]; r != nil && r.State == queue.Holding {
		a.Grant, a.TTL = locks.Grant{Ref: e.ref, Slots: r.Slots, Fence: r.Fence}, r.ttl
	}
	return a
}

// apply makes a decision true. overdue is the time without a question after which the entry that asks counts as
// dead, if it waits.
func (t *Table) apply(l *lock, e *entry, step queue.Step, d *queue.Decision, overdue time.Duration, now locks.Instant) {
	l.counter = d.Counter
	for _, changed := range d.Put {
		isCaller := changed.ID == e.ref.ID.String()
		r := l.rows[changed.ID]
		if r == nil {
			r = &row{owner: e.owner, ttl: e.ttl, hold: e.hold, since: now, wake: e.wake}
			l.rows[changed.ID] = r
		}
		wasHolding := r.State == queue.Holding
		isNewlyEvicted := changed.Evicted != r.Evicted
		r.Entry = changed
		switch {
		case changed.State == queue.Waiting:
			r.ends, r.due, r.wake = now.Add(r.ttl), now.Add(overdue), e.wake
		case changed.State == queue.Holding && isCaller && step != queue.Evict:
			r.grant(now, !wasHolding && step == queue.Join)
		case changed.State == queue.Ended, changed.State == queue.Tombstone:
			r.ends = now
		}
		if step == queue.Hold && isCaller && changed.State == queue.Holding {
			r.holdEnd = now.Add(e.laterHold)
		}
		if changed.State == queue.Holding && isNewlyEvicted {
			r.holdEnd = 0
			t.tell(r)
		}
	}
	for _, id := range append(d.Told, d.Due) {
		if r := l.rows[id]; r != nil && id != e.ref.ID.String() {
			t.tell(r)
		}
	}
}

// grant begins or prolongs the lease of a holder. isNew says that the holder has just got its slots.
func (r *row) grant(now locks.Instant, isNew bool) {
	r.ends = now.Add(r.ttl)
	if !isNew {
		return
	}
	r.since = now
	if r.hold > 0 {
		r.holdEnd = now.Add(r.hold)
	}
}

// tell wakes the owner of a row.
func (t *Table) tell(r *row) {
	if r.wake == nil || t.Faults.losesWakeUp() {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // the owner has not seen the last wake-up yet
	}
}

// show converts entries of a decision to what a listing shows.
func (t *Table) show(l *lock, key locks.Key, entries []queue.Entry, now locks.Instant) (all []locks.Entry) {
	for _, e := range entries {
		all = append(all, l.rows[e.ID].show(l.name, key, e.State, now))
	}
	return all
}

func (r *row) show(name string, key locks.Key, state queue.State, now locks.Instant) locks.Entry {
	e := locks.Entry{
		Name: name, State: locks.Waiting, Claim: r.Claim, Evicted: r.Evicted, TTL: r.ttl,
		Expires: max(r.ends.Sub(now), 0), Ended: state == queue.Ended,
	}
	e.Ref, _ = locks.ParseRef(key.String() + "-" + r.ID)
	r.owner.Describe(&e)
	e.SetAge(now.Sub(r.since))
	if state == queue.Holding || state == queue.Ended {
		e.State, e.Slots, e.Fence = locks.Holding, r.Slots, r.Fence
	}
	if r.holdEnd > now {
		e.HeldTill = time.Now().Add(r.holdEnd.Sub(now))
	}
	return e
}

// entries lists the live entries of a name, or of all names.
func (t *Table) entries(name string) (all []locks.Entry) {
	now := now()
	for key, l := range t.queues {
		if name != "" && l.name != name {
			continue
		}
		v := t.view(l, "", now)
		all = append(all, t.show(l, key, append(v.Holders, v.Waiters...), now)...)
	}
	locks.Arrange(all)
	return all
}

// sweep removes the rows of a name, or of all names, whose time was over olderThan ago, and unused names.
func (t *Table) sweep(name string, olderThan time.Duration) (removed int) {
	moment := now().Add(-olderThan)
	for key, l := range t.queues {
		if name != "" && l.name != name {
			continue
		}
		before := len(l.rows)
		l.dropExpired(moment)
		removed += before - len(l.rows)
		if len(l.rows) == 0 {
			delete(t.queues, key)
		}
	}
	return removed
}

func (t *Table) forget(name string) { delete(t.queues, locks.KeyOf(name)) }
