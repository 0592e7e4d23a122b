package sql

import (
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

const (
	tombstoneAge = 10 * time.Minute // how long a tombstone is kept

	tidyEvery = 16 // about one in tidyEvery steps removes old tombstones
)

// step is one transaction: what is decided from a view and a question, and what is written.
type step struct {
	store *Store
	q     *question
	v     *view
	name  nameState
	sent  locks.Instant   // when the step began, after the login and before its first statement; 0 if it asked nothing
	rows  map[string]*row // the rows of the view, as they are in the table

	writes   []string // the statements that write the step
	lasting  bool     // a crash of the server must not undo the step
	sleepers []string // the numbers of the connections to wake
	again    bool     // another step has to read more waiters to hand out the free slots

	pace      queue.Pace   // the pace of a waiter from now on
	answer    lease.Answer // the answer without its grant
	callerRow *row         // the row of the entry that asked, if it is granted, held or queued
}

// decide makes the step of a question.
func (s *Store) decide(q *question, v *view) (*step, error) {
	t := &step{store: s, q: q, v: v, name: *v.name, rows: map[string]*row{}}
	// The next step takes this one as proof that nothing was forgotten, so the epoch is
	// checked. A name without an epoch has not had any entries yet.
	if t.name.epoch != "" || q.Step == queue.Join || q.Step.Renews() {
		t.checkEpoch()
	}
	visible := t.viewWithoutExpired()
	d := queue.Decide(visible, q.Question)
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
		a.Nap = s.abilities().AfterStep(&visible, w)
	}
	a.Holders, a.Replaced = t.show(d.Holders), t.show(d.Replaced) // before apply changes the rows
	t.apply(&d, a.Nap.Overdue)
	t.callerRow, t.again = t.rows[d.Entry.ID], d.Again
	return t, nil
}

// hasWaiters reports whether somebody waits.
func (t *step) hasWaiters() bool { return t.v != nil && len(t.v.front) > 0 }

// hasFewHolders reports whether holders of the name may keep their connections.
func (t *step) hasFewHolders() bool {
	return t.v != nil && len(t.v.holders) <= t.store.keptConns()
}

// show converts entries of the decision.
func (t *step) show(entries []queue.Entry) (all []locks.Entry) {
	for _, e := range entries {
		r := *t.rows[e.ID]
		r.Entry = e
		all = append(all, r.entry(t.name.name, t.q.key, t.v.now))
	}
	return all
}
