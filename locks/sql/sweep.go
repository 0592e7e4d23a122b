package sql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Sweep implements locks.QueueStore: it removes the entries whose time ended
// olderThan ago, and the rows of names that have none and were not used for as
// long. A name that comes back goes on with higher numbers, as they follow the
// clock. Each name is swept in a transaction that locks it like every step.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	c := &session{store: s}
	defer c.disconnect()
	where := " WHERE entry_id='' AND lock_key<>''"
	if name != "" {
		where += " AND lock_key='" + locks.KeyOf(name).String() + "'"
	}
	var keys Rows
	err = c.once(ctx, func(ctx context.Context) error {
		answers, err := c.ask(ctx, "SELECT lock_key FROM "+s.table+where, shape{columns: 1})
		if err == nil {
			keys = answers[0]
		}
		return err
	})
	var invalid []locks.InvalidEntry
	for i := 0; i < len(keys) && err == nil; i++ {
		var found []locks.InvalidEntry
		err = c.once(ctx, func(ctx context.Context) (err error) {
			var n int
			n, found, err = c.sweep(ctx, keys[i][0], olderThan)
			removed += n
			return err
		})
		invalid = append(invalid, found...)
	}
	if err == nil {
		err = lease.Located(s.URL(), lease.Invalid(invalid))
	}
	return removed, err
}

// sweep removes what is left of one name and reports how much that was, and the invalid entries that
// stay.
func (c *session) sweep(ctx context.Context, key string, olderThan time.Duration) (removed int, invalid []locks.InvalidEntry, err error) {
	s := c.store
	if !isID(key) {
		return 0, []locks.InvalidEntry{{ID: key, Err: errors.New("the key of a lock is 32 hexadecimal digits")}}, nil
	}
	v, err := c.look(ctx, &question{Question: queue.Question{Step: queue.Look}, key: key})
	switch {
	case errors.Is(err, errNoName): // somebody else has swept it
		c.closeConn()
		return 0, nil, nil
	case err != nil:
		return 0, nil, err
	}
	before := v.now - micros(olderThan)
	name := fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, key)
	of := name + " AND entry_id<>''"
	forgotten := fmt.Sprintf("state='G' AND ends<=%d", v.now-micros(max(olderThan, remember)))
	// Nobody lives by an entry without an ID.
	dead := "(" + isOver(before) + " OR CHAR_LENGTH(entry_id)<>32"
	isNameInvalid := false
	for i := range v.invalid {
		r := &v.invalid[i]
		switch {
		case r.State == nameRow:
			isNameInvalid = true
			invalid = append(invalid, r.invalid(v.name.name, key))
		case isID(r.ID), !isPlain(r.ID) && len(r.ID) == 32:
			invalid = append(invalid, r.invalid(v.name.name, key))
		case isPlain(r.ID):
			dead += " OR entry_id='" + r.ID + "'"
		}
	}
	dead += ")"
	answers, err := c.ask(ctx, "SELECT COUNT(*)"+of+" AND "+dead+
		";DELETE"+of+" AND ("+dead+" OR "+forgotten+");SELECT COUNT(*)"+of, oneNumber, oneNumber)
	if err != nil {
		return 0, nil, err
	}
	var left int
	if err := cmp.Or(scan(answers[0][0], &removed), scan(answers[1][0], &left)); err != nil {
		return 0, nil, err
	}
	// A sweep is no use of the name: it leaves neither its own time in the row nor a proof
	// that the server has forgotten nothing.
	end := "UPDATE " + s.table + " SET counter=seen WHERE lock_key='" + key + "' AND entry_id='';COMMIT"
	if left == 0 && (v.name.seen <= before || isNameInvalid) {
		removed++
		invalid = nil
		end = "DELETE" + name + " AND entry_id='';COMMIT"
	}
	_, err = c.ask(ctx, end)
	return removed, invalid, err
}
