package sql

import (
	"slices"

	"golock/locks"
	"golock/locks/lease"
)

// replaceableAhead counts the waiters that a newcomer puts out of its way.
func (t *step) replaceableAhead(mine *row) int {
	n := 0
	for i := range t.v.replaceable {
		if w := &t.v.replaceable[i]; w.ends > t.v.now && w.before(mine) {
			n++
		}
	}
	return n
}

// replace evicts those who stand, or hold, where a newcomer wants to be that
// replaces them.
func (t *step) replace(mine *row) []row {
	var all []row
	var rivals []locks.Rival
	add := func(r row, state locks.State) {
		all = append(all, r)
		rivals = append(rivals, locks.Rival{Claim: r.claim, State: state, Replace: r.replaces, Leaving: r.evicted != ""})
	}
	for _, w := range t.v.replaceable {
		if w.ends > t.v.now && w.id != mine.id {
			add(w, locks.Waiting)
		}
	}
	for _, h := range t.holders {
		add(h, locks.Holding)
	}
	var replaced []row
	for _, i := range locks.Replaced(rivals, mine.claim, mine.replaces) {
		r := all[i]
		replaced = append(replaced, r)
		switch {
		case r.state == waiting:
			t.evictWaiter(&r, t.q.who)
		case r.left(t.v.now):
			t.drop(r.id)
			t.holders = slices.DeleteFunc(t.holders, func(h row) bool { return h.id == r.id })
		default:
			t.mark(&r, t.q.who)
		}
	}
	return replaced
}

// evictWaiter ends a waiter's place. Its golock learns of it when it looks.
func (t *step) evictWaiter(w *row, by string) {
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == w.id })
	t.write("UPDATE %s SET state='G',place=%d,evicted='%s' WHERE lock_key='%s' AND entry_id='%s'",
		t.store.table, t.v.now, escape(by, maxEvicted), t.q.key, w.id)
	t.v.waiters = max(t.v.waiters-1, 0)
	t.v.before = max(t.v.before-1, 0)
	t.changed = true
	t.call(w)
}

// mark tells a holder to go. Its golock learns of it with its next renewal. Its
// hold is void.
func (t *step) mark(h *row, by string) {
	h.evicted, h.hold = by, 0
	t.write("UPDATE %s SET evicted='%s',hold=0 WHERE lock_key='%s' AND entry_id='%s'", t.store.table, escape(by, maxEvicted), t.q.key, h.id)
}

func (t *step) evict() answer {
	own := t.v.own
	switch {
	case own == nil || own.state == gone:
		return verdict(lease.Lost)
	case own.left(t.v.now):
		t.forget(t.q.who)
	case own.state == holding:
		if own.evicted == "" {
			t.mark(own, t.q.who)
		}
		return verdict(lease.Marked)
	default:
		t.evictWaiter(own, t.q.who)
	}
	t.wake()
	return verdict(lease.Marked)
}
