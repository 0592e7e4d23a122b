package sql

import (
	"fmt"

	"golock/locks/queue"
)

// viewWithoutExpired returns what the decision sees: the entries whose time is not over. If there are others, it
// adds a statement to the writes that deletes them.
func (t *step) viewWithoutExpired() queue.View {
	v := t.v
	visible := queue.View{
		Counter: t.name.counter - stepNumbers, Epoch: t.name.epoch,
		Quarantined: t.quarantineEnd() > v.now, QuarantineLeft: span(max(t.quarantineEnd()-v.now, 0)),
		More: v.hasMore(), Ahead: v.ahead, Total: v.waiters, Replaceable: t.alive(v.replaceable),
	}
	for i := range v.invalid {
		visible.Invalid = append(visible.Invalid, v.invalid[i].invalid(v.name.name, t.q.key))
	}
	visible.Holders, visible.Waiters = t.alive(v.holders), t.alive(v.front)
	hasExpired := len(visible.Waiters) < len(v.front) || len(visible.Holders) < len(v.holders)
	caller := v.callerRow
	if caller != nil && (caller.State == queue.Tombstone || caller.until() > v.now) {
		e := t.entry(caller)
		visible.Caller = &e
	} else if caller != nil {
		hasExpired = true
	}
	if hasExpired {
		t.name.moved = t.name.counter
		t.write("DELETE FROM %s WHERE lock_key='%s' AND %s", t.store.table, t.q.key, isOver(v.now))
	}
	return visible
}

// isOver returns the condition of rows whose time was over at a moment (see row.until). It leaves out offers:
// look revokes those (revokeText).
func isOver(moment int64) string {
	return fmt.Sprintf("state IN ('W','H','E') AND (state='W' OR hold<=%[1]d) AND (state='E' OR ends<=%[1]d)", moment)
}

// alive returns what the decision sees of the rows whose time is not over.
func (t *step) alive(rows []row) (all []queue.Entry) {
	for i := range rows {
		if rows[i].until() > t.v.now {
			all = append(all, t.entry(&rows[i]))
		}
	}
	return all
}

// entry returns what the decision sees of a row, and adds the row to rows. If the row is invalid, entry clears
// its connection, so that no step wakes it.
func (t *step) entry(r *row) queue.Entry {
	t.rows[r.ID] = r
	e := r.Entry
	e.Invalid = r.flaw != nil && e.State != queue.Tombstone
	switch {
	case e.Invalid:
		r.wakeConn = 0 // the number may be that of another client
		if e.State != queue.Holding && e.State != queue.Offered {
			e.State = queue.Waiting
		}
		return e
	case e.State == queue.Waiting:
		e.Reachable, e.Absent = r.wakeConn != 0 && t.canWake(r), r.due <= t.v.now
	case e.State == queue.Holding && r.ends <= t.v.now:
		e.State = queue.Ended
	}
	if e.State == queue.Holding || e.State == queue.Ended {
		e.HoldLeft = max(span(r.hold-t.v.now), 0)
	}
	e.Left = r.left(t.v.now)
	return e
}
