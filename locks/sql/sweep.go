package sql

import (
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
	defer c.idle()
	var keys []string
	where := " WHERE entry_id='' AND lock_key<>''"
	if name != "" {
		where += " AND lock_key='" + locks.KeyOf(name).String() + "'"
	}
	err = s.once(ctx, c, func(ctx context.Context) error {
		rows, err := c.ask(ctx, "SELECT lock_key FROM "+s.table+where)
		if err != nil || len(rows) != 1 {
			return err
		}
		keys = nil
		for _, r := range rows[0] {
			if !isPlain(r[0]) {
				return &lease.Refusal{Err: errNotOurs}
			}
			keys = append(keys, r[0])
		}
		return nil
	})
	for _, key := range keys {
		if err != nil {
			break
		}
		err = s.once(ctx, c, func(ctx context.Context) error {
			n, err := c.sweep(ctx, key, olderThan)
			removed += n
			return err
		})
	}
	if errors.Is(err, errNoTable) {
		err = nil
	}
	return removed, lease.Located(s.URL(), err)
}

// errNoTable says that nothing was ever kept here.
var errNoTable = errors.New("the table does not exist")

// once does one thing over the session, again if the connection fails. It does not
// make a table that does not exist.
func (s *Store) once(ctx context.Context, c *session, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	return lease.Retry(ctx, s.URL(), func() error {
		ctx, cancel := context.WithTimeout(ctx, lease.LongestAttempt)
		defer cancel()
		err := do(ctx)
		if err == nil {
			return nil
		}
		c.hangUp()
		if s.verdict(err) == NoTable {
			return &lease.Refusal{Err: errNoTable}
		}
		return s.judge(err)
	})
}

// sweep removes what is left of one name and reports how much that was.
func (c *session) sweep(ctx context.Context, key string, olderThan time.Duration) (int, error) {
	s := c.store
	q := &question{Question: queue.Question{Step: queue.Look}, key: key}
	v, err := c.look(ctx, q)
	switch {
	case errors.Is(err, errNoName), errors.Is(err, errNotLocked): // somebody else has swept it
		c.hangUp()
		return 0, nil
	case err != nil:
		return 0, err
	}
	before := v.now - micros(olderThan)
	name := fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, key)
	of := name + " AND entry_id<>''"
	dead := fmt.Sprintf("(state IN ('W','O') AND ends<=%[1]d OR state IN ('H','E') AND ends<=%[1]d AND hold<=%[1]d)", before)
	forgotten := fmt.Sprintf("(state='G' AND ends<=%d)", v.now-micros(max(olderThan, remember)))
	answers, err := c.ask(ctx, "SELECT COUNT(*)"+of+" AND "+dead+";DELETE"+of+" AND ("+dead+" OR "+forgotten+");SELECT COUNT(*)"+of)
	if err != nil {
		return 0, err
	}
	if len(answers) != 2 || len(answers[0]) != 1 || len(answers[1]) != 1 {
		return 0, refusal("%d answers to 2 questions", len(answers))
	}
	var n numbers
	removed, left := int(n.read(answers[0][0][0])), n.read(answers[1][0][0])
	// Nothing shows that the name was looked at: neither is it used by that, nor
	// known since when the server runs.
	end := "UPDATE " + s.table + " SET counter=seen WHERE lock_key='" + key + "' AND entry_id='';COMMIT"
	if left == 0 && v.name.seen <= before {
		removed++
		end = "DELETE" + name + " AND entry_id='';COMMIT"
	}
	if n.err != nil {
		return 0, &lease.Refusal{Err: n.err}
	}
	_, err = c.ask(ctx, end)
	return removed, err
}
