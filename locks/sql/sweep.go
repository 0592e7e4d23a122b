package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Sweep implements locks.Queue: it removes the entries whose time ended
// olderThan ago, and the rows of names that have none and were not used for as
// long. A name that comes back goes on with higher numbers, as they follow the
// clock. Each name is swept in a transaction that locks it like every step.
func (s *Store) Sweep(ctx context.Context, name string, olderThan time.Duration) (removed int, err error) {
	c := &session{store: s}
	defer c.disconnect()
	keys := Rows{{locks.KeyOf(name).String()}}
	if name == "" {
		err = c.retryCall(ctx, func(ctx context.Context) (err error) {
			keys, removed, err = c.sweepTable(ctx)
			return err
		})
	}
	var invalid []locks.InvalidEntry
	for i := 0; i < len(keys) && err == nil; i++ {
		var found []locks.InvalidEntry
		err = c.retryCall(ctx, func(ctx context.Context) (err error) {
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

// sweepTable removes the rows that belong to no lock. It also removes the table's own row if golock cannot have
// written it; the next step makes that row again. sweepTable returns the keys of the names.
func (c *session) sweepTable(ctx context.Context) (keys Rows, removed int, err error) {
	s := c.store
	const isTableRow = "lock_key='' AND entry_id=''"
	isInvalidKey := "lock_key<>'' AND " + s.isNoID("lock_key")
	const isEntryWithoutKey = "lock_key='' AND entry_id<>''"
	isInvalidTableRow := fmt.Sprintf("%s AND (quiet<0 OR quiet>%s+%d OR made<0 OR made>%d)",
		isTableRow, s.dialect.Clock, micros(locks.MaxTTL), locks.MaxMoment)
	isOfNoLock := strings.Join([]string{isInvalidKey, isEntryWithoutKey, isInvalidTableRow}, " OR ")
	isName := "entry_id='' AND lock_key<>'' AND NOT " + s.isNoID("lock_key")
	of := " FROM " + s.table + " WHERE "
	text := "SELECT format" + of + isTableRow + ";SELECT COUNT(*)" + of + isOfNoLock + ";SELECT lock_key" + of + isName
	answers, err := c.ask(ctx, text, shape{columns: 1}, oneNumber, shape{columns: 1})
	if err != nil {
		return nil, 0, err
	}
	formats, count, names := answers[0], answers[1], answers[2]
	for _, f := range formats {
		var found int64
		err := scan(f, &found)
		if err == nil {
			err = s.checkFormat(found)
		}
		if err != nil {
			return nil, 0, &lease.Refusal{Err: err}
		}
	}
	err = scan(count[0], &removed)
	if err == nil && removed > 0 {
		_, err = c.write(ctx, "DELETE"+of+isOfNoLock)
	}
	return names, removed, err
}

// isNoID returns the condition that the text of a column is not an ID (isID).
func (s *Store) isNoID(column string) string {
	return "(CHAR_LENGTH(" + column + ")<>32 OR " + fmt.Sprintf(s.dialect.NotHex, column) + ")"
}

// sweep removes the dead entries and old tombstones of one name, and the name's row if no entry is left. It
// returns the number of removed entries, and the invalid entries that stay.
func (c *session) sweep(
	ctx context.Context, key string, olderThan time.Duration,
) (removed int, invalid []locks.InvalidEntry, err error) {
	s := c.store
	q := &question{Question: queue.Question{Step: queue.Look}, key: key, row: row{ttl: lease.DefaultTTL}}
	v, err := c.look(ctx, q)
	if errors.Is(err, errNoTableRow) {
		if _, err = c.makeTableRow(ctx, q); err == nil {
			v, err = c.look(ctx, q)
		}
	}
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
	forgotten := fmt.Sprintf("state='G' AND ends<=%d", v.now-micros(max(olderThan, tombstoneAge)))
	// No process owns an entry without a valid ID.
	dead := fmt.Sprintf("(%s OR %s OR state NOT IN ('W','O','H','E','G') AND ends<=%d)",
		isOver(before), s.isNoID("entry_id"), before)
	isNameInvalid := false
	for i := range v.invalid {
		r := &v.invalid[i]
		isNameInvalid = isNameInvalid || r.isName()
		if r.isName() || isID(r.ID) {
			invalid = append(invalid, r.invalid(v.name.name, key))
		}
	}
	answers, err := c.ask(ctx, "SELECT COUNT(*)"+of+" AND "+dead+
		";DELETE"+of+" AND ("+dead+" OR "+forgotten+");SELECT COUNT(*)"+of, oneNumber, oneNumber)
	if err != nil {
		return 0, nil, err
	}
	var left int
	err = scan(answers[0][0], &removed)
	if err == nil {
		err = scan(answers[1][0], &left)
	}
	if err != nil {
		return 0, nil, err
	}
	// A sweep does not count as a use of the name. So it restores the counter, which is also the time of
	// the last use and the proof that the server has forgotten nothing.
	end := "UPDATE " + s.table + " SET counter=seen WHERE lock_key='" + key + "' AND entry_id='';COMMIT"
	if left == 0 && (v.name.seen <= before || isNameInvalid) {
		removed++
		invalid = nil
		end = "DELETE" + name + " AND entry_id='';COMMIT"
	}
	_, err = c.ask(ctx, end)
	return removed, invalid, err
}
