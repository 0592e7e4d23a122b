package sql

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// The times of a queue.
const (
	remember = 10 * time.Minute // that an entry has gone

	tidyEvery = 16 // about one of this number of steps removes what is forgotten
)

// step is one transaction: what is decided from a view and a question, and what is written.
type step struct {
	store *Store
	q     *question
	v     *view
	name  nameState
	sent  locks.Instant   // before its first statement, and after the login
	rows  map[string]*row // of the view, as they are in the table

	writes   []string
	lasting  bool     // a crash of the server must not undo it
	sleepers []string // numbers of connections
	again    bool     // more of the waiters have to be read to hand out what is free

	pace   queue.Pace   // of a waiter, from now on
	answer lease.Answer // without its grant
	own    *row         // of an entry that is granted, held or queued
}

// decide makes the step of a question.
func (s *Store) decide(q *question, v *view) (*step, error) {
	t := &step{store: s, q: q, v: v, name: *v.name, rows: map[string]*row{}}
	// The next step takes this one as proof that nothing was forgotten, so the epoch is
	// checked. A name without an epoch has not had any entries yet.
	if t.name.epoch != "" || q.Step == queue.Join || q.Step.Renews() {
		t.checkEpoch()
	}
	seen := t.view()
	d := queue.Decide(seen, q.Question)
	if len(d.Invalid) > 0 {
		return nil, lease.Invalid(d.Invalid)
	}
	for _, e := range d.Put {
		if n := len(locks.FormatSlots(e.Slots)); n > maxSlots {
			return nil, refusal("the free slots are too scattered to be written down (%d bytes)", n)
		}
	}
	t.answer.Outcome = d.Outcome
	a := &t.answer
	a.Epoch, a.QuarantineCause = t.name.epoch, "the server has restarted, or its table was emptied or made again"
	if d.Fits {
		a.Quarantine = span(max(t.quarantineEnd()-v.now, 0))
	}
	if d.Verdict == queue.Queued {
		t.pace = q.pace.At(d.Place, time.Now())
		w := q.waiter(d.Place, t.canBeWoken(d.Place-1), t.pace)
		w.Fits, w.IsDue = d.Fits, d.Due == q.row.ID
		a.Nap = s.abilities().AfterStep(&seen, w)
	}
	a.Holders, a.Replaced = t.show(d.Holders), t.show(d.Replaced) // as they were
	t.apply(&d, a.Nap.Overdue)
	t.own, t.again = t.rows[d.Entry.ID], d.Again
	return t, nil
}

// hasWaiters reports whether somebody waits.
func (t *step) hasWaiters() bool { return t.v != nil && len(t.v.front) > 0 }

// hasFewHolders reports whether holders of the name may keep their connections.
func (t *step) hasFewHolders() bool {
	return t.v != nil && len(t.v.holders) <= t.store.keptConns()
}

// show is what the contract shows of entries.
func (t *step) show(entries []queue.Entry) (all []locks.Entry) {
	for _, e := range entries {
		r := *t.rows[e.ID]
		r.Entry = e
		all = append(all, r.entry(t.name.name, t.q.key, t.v.now))
	}
	return all
}

// checkEpoch begins a new epoch if the server is not the one on which the name was last
// used, or was started since. It may have forgotten the last commits: nothing is granted
// until holders have had the time to renew. In its own epoch a holder that is missing was
// evicted; in another one it may come back.
func (t *step) checkEpoch() {
	// Several servers may answer at one address: the latest are known.
	servers := strings.Fields(t.name.servers)
	here := escape(t.v.server, maxServer)
	if t.name.epoch != "" && slices.Contains(servers, here) && t.v.start <= t.name.seen {
		return
	}
	if span := micros(t.store.target.Quarantine); span > 0 {
		switch {
		case t.name.epoch == "" && here == t.v.tableServer && t.v.start <= t.v.tableMade:
			// No name of this table can have been forgotten.
		case t.name.epoch == "", t.v.start > t.name.seen:
			t.name.quarantine = t.v.start + span
		default: // it ran already, beside the other one
			t.name.quarantine = t.v.now + span
		}
	}
	if t.name.epoch == "" && t.v.tableQuarantine > 0 {
		// The table was lost and made again, perhaps by somebody with a shorter lease.
		// Holders of this name are unknown until they renew.
		t.name.quarantine = max(t.name.quarantine, t.v.tableMade+micros(t.q.row.ttl))
	}
	t.name.epoch = fmt.Sprintf("%s-%d", t.q.row.ID, t.v.now)
	servers = slices.DeleteFunc(servers, func(s string) bool { return s == here })
	t.name.servers = strings.Join(append([]string{here}, servers[:min(len(servers), manyServers-1)]...), " ")
}

// quarantineEnd is from when on slots may be granted.
func (t *step) quarantineEnd() int64 { return max(t.name.quarantine, t.v.tableQuarantine) }

// view is what the decision sees. Entries whose time is over are deleted.
func (t *step) view() queue.View {
	v := t.v
	seen := queue.View{
		Counter: t.name.counter - stepNumbers, Epoch: t.name.epoch,
		Quarantined: t.quarantineEnd() > v.now, QuarantineLeft: span(max(t.quarantineEnd()-v.now, 0)),
		More: v.more(), Ahead: v.ahead, Total: v.waiters, Replaceable: t.alive(v.replaceable),
	}
	for i := range v.invalid {
		seen.Invalid = append(seen.Invalid, v.invalid[i].invalid(v.name.name, t.q.key))
	}
	seen.Holders, seen.Waiters = t.alive(v.holders), t.alive(v.front)
	over := len(seen.Waiters) < len(v.front) || len(seen.Holders) < len(v.holders)
	if own := v.own; own != nil && (own.State == queue.Tombstone || own.until() > v.now) {
		e := t.entry(own)
		seen.Own = &e
	} else if own != nil {
		over = true
	}
	if over {
		t.name.moved = t.name.counter
		t.write("DELETE FROM %s WHERE lock_key='%s' AND %s", t.store.table, t.q.key, isOver(v.now))
	}
	return seen
}

// isOver is the condition of rows that were over at a moment (see row.until). An offer that is
// over is revoked.
func isOver(moment int64) string {
	return fmt.Sprintf("state IN ('W','H','E') AND (state='W' OR hold<=%[1]d) AND (state='E' OR ends<=%[1]d)", moment)
}

func (t *step) alive(rows []row) (all []queue.Entry) {
	for i := range rows {
		if rows[i].until() > t.v.now {
			all = append(all, t.entry(&rows[i]))
		}
	}
	return all
}

// entry is what the decision sees of a row.
func (t *step) entry(r *row) queue.Entry {
	t.rows[r.ID] = r
	e := r.Entry
	e.Invalid = r.flaw != nil && e.State != queue.Tombstone
	switch {
	case e.Invalid:
		r.conn = 0 // it may be anybody's
		if e.State != queue.Holding && e.State != queue.Offered {
			e.State = queue.Waiting
		}
		return e
	case e.State == queue.Waiting:
		e.Reachable, e.Absent = r.conn != 0 && t.canWake(r), r.due <= t.v.now
	case e.State == queue.Holding && r.ends <= t.v.now:
		e.State = queue.Ended
	}
	if e.State == queue.Holding || e.State == queue.Ended {
		e.HoldLeft = max(span(r.hold-t.v.now), 0)
	}
	e.Left = r.left(t.v.now)
	return e
}

// apply writes a decision. overdue is after what time the entry in question counts as dead if it waits.
func (t *step) apply(d *queue.Decision, overdue time.Duration) {
	dialect := &t.store.dialect
	told := d.Told
	if own := t.rows[t.q.row.ID]; own != nil && own.State == queue.Waiting && d.Verdict == queue.Released &&
		!dialect.Notifies {
		// The statement in which the entry slept has nobody left who waits for its answer, so end it.
		told = append(told, own.ID)
	}
	for _, id := range told {
		if r := t.rows[id]; r.conn != 0 && t.canWake(r) {
			if dialect.Notifies {
				t.write("NOTIFY golock_%s", id)
			}
			t.sleepers = append(t.sleepers, strconv.FormatInt(r.conn, 10))
		}
	}
	if own := t.v.own; own != nil && own.State == queue.Tombstone && own.conn != 0 && t.q.Step == queue.Join {
		t.write("UPDATE %s SET conn=0 WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.q.key, own.ID)
	}
	offered := false
	for _, e := range d.Put {
		r, old := t.row(e, d, overdue), t.rows[e.ID]
		t.save(&r, old)
		waited, waits := old != nil && old.State == queue.Waiting, e.State == queue.Waiting
		last := t.q.isNew() && d.Place > t.v.waiters
		if waited != waits && !(waits && last) {
			t.name.moved = t.name.counter
		}
		t.rows[e.ID] = &r
		offered = offered || e.State == queue.Offered
	}
	if len(t.writes) > 0 && t.name.counter%tidyEvery == 0 {
		t.write("DELETE FROM %s WHERE lock_key='%s' AND state='G' AND ends<%d",
			t.store.table, t.q.key, t.v.now-micros(remember))
	}
	// A waiter lost in a crash rejoins with its ticket. An offer need not be on the disk
	// before its acceptance is, which comes later in the log.
	queued := d.Verdict == queue.Queued && len(d.Replaced) == 0
	newEpoch := t.name.epoch != t.v.name.epoch
	t.lasting = newEpoch || !queued && len(d.Put) > 0 && !(t.q.Step == queue.Release && offered)
	t.name.counter = max(t.name.counter, d.Counter)
	if len(t.v.invalid) == 0 { // else not all who wait are known
		t.describeFront()
	}
}

// row is what is written for an entry.
func (t *step) row(e queue.Entry, d *queue.Decision, overdue time.Duration) row {
	was, r := queue.State(0), t.q.row
	if old := t.rows[e.ID]; old != nil {
		was, r = old.State, *old
	}
	isFlawed := r.flaw != nil
	r.Entry, r.flaw = e, nil
	switch e.State {
	case queue.Waiting:
		if e.ID != t.q.row.ID || t.q.Step != queue.Join { // its offer was withdrawn
			r.due, r.conn = t.v.now, 0
			break
		}
		r.ends, r.due, r.conn = t.v.now+micros(r.ttl), t.v.now+micros(overdue), 0
		r.login = t.v.login
		if was == 0 && r.since == 0 {
			r.since = t.v.now
		}
		if t.canBeWoken(d.Place - 1) {
			r.conn = t.v.conn
			if t.store.dialect.Notifies {
				t.write("LISTEN golock_%s", e.ID)
			}
		}
	case queue.Offered:
		r.due = t.v.now + micros(min(queue.OfferLimit, r.ttl))
	case queue.Holding:
		if t.q.Step == queue.Join && e.ID == t.q.row.ID && was != queue.Holding {
			r.since = t.v.now
			if r.hold > 0 {
				r.hold = min(r.hold+t.v.now, locks.MaxMoment)
			}
		}
		if e.ID == t.q.row.ID && t.q.Step != queue.Evict {
			r.ends, r.due, r.conn, r.login = t.v.now+micros(r.ttl), 0, 0, t.v.login
		}
		if e.ID == t.q.row.ID && t.q.Step == queue.Hold {
			r.hold = min(t.q.laterHold+t.v.now, locks.MaxMoment)
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
		conn := r.conn
		r = row{Entry: e, ends: t.v.now}
		if e.ID != t.q.row.ID || t.q.Step == queue.Evict {
			r.conn = conn // until it has looked
		}
	}
	return r
}

// describeFront keeps in the name's row what others look at: low, which is at or before the first
// waiter and near it, so that queries skip the rows that were removed before it, and late.
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
	still := ""
	if old.State == queue.Offered && r.State == queue.Waiting { // it may just be accepting
		still = " AND state='O'"
	}
	t.write("UPDATE %s SET %s WHERE lock_key='%s' AND entry_id='%s'%s",
		t.store.table, strings.Join(set, ","), t.q.key, r.ID, still)
}

// rollback ends a transaction that has changed nothing.
const rollback = "ROLLBACK"

// isRefusal reports whether the entry asks no more.
func (t *step) isRefusal() bool {
	v := t.answer.Verdict
	return (v == queue.Busy || v == queue.Nested) && t.answer.Quarantine == 0
}

// finish is the text that writes the step and ends its transaction. A step that changed
// nothing is rolled back: its lock need not reach the disk. But a newcomer is turned away only by a
// server that can commit, if the URL has another one.
func (t *step) finish() string {
	switch {
	case t.v.isNewName && len(t.writes) > 0:
		// Somebody else may have made the row since: then this fails, before anything else is written.
		t.writes = slices.Insert(t.writes, 0, t.insertName())
	case t.name != *t.v.name:
		t.write("UPDATE %s SET epoch='%s',servers='%s',quiet=%d,counter=%d,low='%s',late=%d,moved=%d WHERE lock_key='%s' AND entry_id=''",
			t.store.table, t.name.epoch, t.name.servers, t.name.quarantine, t.name.counter, t.name.low, t.name.late,
			t.name.moved, t.q.key)
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

// canWake reports whether this client can wake a waiter. A number of a connection from before
// the server's last start is void.
func (t *step) canWake(w *row) bool {
	return t.sameAccount(w) && w.ends-micros(w.ttl) >= t.v.start
}

// sameAccount reports whether this client and that of an entry can wake each other. Without
// notifications that takes the same server and account; an account of MySQL includes a host.
func (t *step) sameAccount(r *row) bool {
	return r.login == t.v.login || t.store.dialect.Notifies
}

// canBeWoken reports whether all who are before a waiter can wake it.
func (t *step) canBeWoken(ahead int) bool {
	if t.v.now < t.v.start || ahead >= t.store.abilities().Wakes {
		return false
	}
	other := func(r row) bool { return !t.sameAccount(&r) }
	return !slices.ContainsFunc(t.v.holders, other) &&
		!slices.ContainsFunc(t.v.front[:min(ahead, len(t.v.front))], other)
}
