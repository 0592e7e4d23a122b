package sql

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// apply writes a decision. overdue is the time after which the entry that asks counts as dead, if it waits.
func (t *step) apply(d *queue.Decision, overdue time.Duration) {
	dialect := &t.store.dialect
	woken := d.Told
	asker := t.rows[t.q.row.ID]
	leavesQueue := asker != nil && asker.State == queue.Waiting && d.Verdict == queue.Released
	if leavesQueue && !dialect.Notifies {
		// The statement in which the entry slept may still run. Nobody waits for it, and the wake-up ends it.
		woken = append(woken, asker.ID)
	}
	for _, id := range woken {
		if r := t.rows[id]; r.wakeConn != 0 && t.canWake(r) {
			if dialect.Notifies {
				t.write("NOTIFY golock_%s", id)
			}
			t.sleepers = append(t.sleepers, strconv.FormatInt(r.wakeConn, 10))
		}
	}
	caller := t.v.callerRow
	seesTombstone := caller != nil && caller.State == queue.Tombstone && t.q.Step == queue.Join
	if seesTombstone && caller.wakeConn != 0 {
		t.write("UPDATE %s SET conn=0 WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.q.key, caller.ID)
	}
	makesOffer := false
	for _, e := range d.Put {
		r := t.row(e, d, overdue)
		old := t.rows[e.ID]
		t.save(&r, old)
		wasWaiting := old != nil && old.State == queue.Waiting
		isWaiting := e.State == queue.Waiting
		joinsAtEnd := isWaiting && t.q.isNew() && d.Place > t.v.waiters
		changesPlaces := wasWaiting != isWaiting && !joinsAtEnd
		if changesPlaces {
			t.name.moved = t.name.counter
		}
		t.rows[e.ID] = &r
		makesOffer = makesOffer || e.State == queue.Offered
	}
	if len(t.writes) > 0 && t.name.counter%tidyEvery == 0 {
		t.write("DELETE FROM %s WHERE lock_key='%s' AND state='G' AND ends<%d",
			t.store.table, t.q.key, t.v.now-micros(tombstoneAge))
	}
	// A step that only queues may be lost: the waiter rejoins with its ticket. A release that makes an offer
	// may be delayed: accepting the offer is durable, and commits after it.
	onlyQueues := d.Verdict == queue.Queued && len(d.Replaced) == 0
	onlyHandsOver := t.q.Step == queue.Release && makesOffer
	beginsEpoch := t.name.epoch != t.v.name.epoch
	t.lasting = beginsEpoch || !onlyQueues && len(d.Put) > 0 && !onlyHandsOver
	t.name.counter = max(t.name.counter, d.Counter)
	if len(t.v.invalid) == 0 { // otherwise some waiters may not be known
		t.describeFront()
	}
}

// row returns what is written for an entry. For a waiter that can be woken it also adds LISTEN to the writes.
func (t *step) row(e queue.Entry, d *queue.Decision, overdue time.Duration) row {
	was, r := queue.State(0), t.q.row
	if old := t.rows[e.ID]; old != nil {
		was, r = old.State, *old
	}
	isFlawed := r.flaw != nil
	r.Entry, r.flaw = e, nil
	isAsker := e.ID == t.q.row.ID
	switch e.State {
	case queue.Waiting:
		if isAsker && t.q.Step == queue.Join {
			t.fillWaiter(&r, was, d.Place, overdue)
		} else { // the decision has withdrawn the offer of this entry
			r.due, r.wakeConn = t.v.now, 0
		}
	case queue.Offered:
		r.due = t.v.now + micros(min(queue.OfferLimit, r.ttl))
	case queue.Holding:
		if isAsker {
			t.fillHolder(&r, was)
		}
		if e.Evicted != "" {
			r.hold = 0
		}
		if isFlawed {
			r.repair(t.v.now)
		}
	case queue.Ended:
		r.ends = t.v.now
	case queue.Tombstone:
		wakeConn := r.wakeConn
		r = row{Entry: e, ends: t.v.now}
		if !isAsker || t.q.Step == queue.Evict {
			r.wakeConn = wakeConn // until the waiter has seen its tombstone
		}
	}
	return r
}

// fillWaiter fills in the row of the entry that asks, which is in the queue from now on or still.
func (t *step) fillWaiter(r *row, was queue.State, place int, overdue time.Duration) {
	r.ends, r.due, r.wakeConn = t.v.now+micros(r.ttl), t.v.now+micros(overdue), 0
	r.login = t.v.login
	if was == 0 && r.since == 0 {
		r.since = t.v.now
	}
	if !t.canBeWoken(place - 1) {
		return
	}
	r.wakeConn = t.v.conn
	if t.store.dialect.Notifies {
		t.write("LISTEN golock_%s", r.ID)
	}
}

// fillHolder fills in the row of the entry that asks, or that is evicted, and that holds from now on or still.
func (t *step) fillHolder(r *row, was queue.State) {
	if t.q.Step == queue.Join && was != queue.Holding {
		r.since = t.v.now
		if r.hold > 0 {
			r.hold = min(r.hold+t.v.now, locks.MaxMoment)
		}
	}
	if t.q.Step != queue.Evict {
		r.ends, r.due, r.wakeConn, r.login = t.v.now+micros(r.ttl), 0, 0, t.v.login
	}
	if t.q.Step == queue.Hold {
		r.hold = min(t.q.laterHold+t.v.now, locks.MaxMoment)
	}
}

// describeFront updates low and late in the name's row. low is at or shortly before the first waiter, so that
// queries skip the index entries of rows that were removed before it.
func (t *step) describeFront() {
	waiting := slices.Collect(maps.Values(t.rows))
	waiting = slices.DeleteFunc(waiting, func(r *row) bool { return r.State != queue.Waiting })
	if len(waiting) == 0 {
		return
	}
	slices.SortFunc(waiting, func(a, b *row) int { return strings.Compare(order(a.Claim), order(b.Claim)) })
	t.name.low, t.name.late = order(waiting[0].Claim), 0
	for _, r := range waiting[:min(queue.StepPlaces, len(waiting))] {
		t.name.late = max(t.name.late, r.due)
	}
}

// write adds a statement to the writes.
func (t *step) write(format string, args ...any) {
	t.writes = append(t.writes, fmt.Sprintf(format, args...))
}

// save inserts a row, or updates the columns that differ.
func (t *step) save(r, old *row) {
	fields := r.fields()
	if old == nil {
		t.write("INSERT INTO %s (lock_key,%s) VALUES ('%s',%s)",
			t.store.table, columns, t.q.key, strings.Join(fields, ","))
		return
	}
	was := old.fields()
	var set []string
	for i, name := range strings.Split(columns, ",") {
		if fields[i] != was[i] || old.flaw != nil {
			set = append(set, name+"="+fields[i])
		}
	}
	if len(set) == 0 {
		return
	}
	ifNotAccepted := ""
	if old.State == queue.Offered && r.State == queue.Waiting { // the waiter may just be accepting the offer
		ifNotAccepted = " AND state='O'"
	}
	t.write("UPDATE %s SET %s WHERE lock_key='%s' AND entry_id='%s'%s",
		t.store.table, strings.Join(set, ","), t.q.key, r.ID, ifNotAccepted)
}

// rollback ends a transaction that has changed nothing.
const rollback = "ROLLBACK"

// isRefusal reports whether the answer is final: the entry does not ask again.
func (t *step) isRefusal() bool {
	v := t.answer.Verdict
	return (v == queue.Busy || v == queue.Nested) && t.answer.Quarantine == 0
}

// finish returns the text that writes the step and ends its transaction. A step that changes nothing is rolled
// back: the lock on the name's row need not reach the disk. But if the URL has several hosts, a newcomer is
// turned away only by a server that can commit.
func (t *step) finish() string {
	switch {
	case t.v.isNewName && len(t.writes) > 0:
		// If somebody else has made the row meanwhile, this fails before anything else is written.
		t.writes = slices.Insert(t.writes, 0, t.insertName())
	case t.name != *t.v.name:
		n := &t.name
		t.write("UPDATE %s SET epoch='%s',servers='%s',quiet=%d,counter=%d,low='%s',late=%d,moved=%d"+
			" WHERE lock_key='%s' AND entry_id=''",
			t.store.table, n.epoch, n.servers, n.quarantine, n.counter, n.low, n.late, n.moved, t.q.key)
	}
	end := t.store.dialect.Commit
	if len(t.writes) == 0 && t.q.isNew() && t.store.hasSeveralHosts() {
		return end
	}
	if len(t.writes) == 0 {
		return rollback
	}
	if !t.lasting {
		end = t.store.dialect.Later + end
	}
	return strings.Join(t.writes, ";") + ";" + end
}

func (t *step) insertName() string {
	n := &t.name
	return fmt.Sprintf("INSERT INTO %s (lock_key,entry_id,state,name,epoch,servers,quiet,counter,turn,low,late,moved)"+
		" VALUES ('%s','','%c','%s','%s','%s',%d,%d,%d,'%s',%d,%d)", t.store.table, t.q.key, nameRow,
		escape(n.name, maxInfo), n.epoch, n.servers, n.quarantine, n.counter, n.turn, n.low, n.late, n.moved)
}
