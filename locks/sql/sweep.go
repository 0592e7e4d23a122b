package sql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golock/locks"
)

var _ locks.Sweeper = (*Store)(nil)

// Sweep implements locks.Sweeper: it removes the entries whose time ended
// olderThan ago, and the rows of names that have none and were not used for as
// long. A name that comes back goes on with higher numbers, as they follow the
// clock. Each name is swept in a transaction that locks it like every step.
func (s *Store) Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error) {
	l := &line{store: s}
	defer l.close()
	var keys []string
	err = s.once(ctx, l, func(ctx context.Context) error {
		rows, err := l.conn.Run(ctx, "SELECT lock_key FROM "+s.table+" WHERE entry_id='' AND lock_key<>''")
		if err != nil || len(rows) != 1 {
			return err
		}
		keys = nil
		for _, r := range rows[0] {
			if !isPlain(r[0]) {
				return &refusal{err: errNotOurs}
			}
			keys = append(keys, r[0])
		}
		return nil
	})
	for _, key := range keys {
		if err != nil {
			break
		}
		err = s.once(ctx, l, func(ctx context.Context) error {
			n, err := l.sweep(ctx, key, olderThan)
			removed += n
			return err
		})
	}
	if errors.Is(err, errNoTable) {
		err = nil
	}
	return removed, s.located(err)
}

// errNoTable says that nothing was ever kept here.
var errNoTable = errors.New("the table does not exist")

// once does one thing over the line, again if the connection fails. It does not
// make a table that does not exist.
func (s *Store) once(ctx context.Context, l *line, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	return s.insist(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, longestAttempt)
		defer cancel()
		err := l.open(ctx)
		if err == nil {
			err = do(ctx)
		}
		if err == nil {
			return nil
		}
		l.hangUp()
		if s.verdict(err) == NoTable {
			return &refusal{err: errNoTable}
		}
		return s.judge(err)
	})
}

// sweep removes what is left of one name and reports how much that was.
func (l *line) sweep(ctx context.Context, key string, olderThan time.Duration) (int, error) {
	s := l.store
	q := &question{mode: nudge, key: key}
	v, err := l.look(ctx, q)
	if err != nil {
		return 0, err
	}
	if v.name == nil || v.name.turn != q.turn { // somebody else has swept it
		l.hangUp()
		return 0, nil
	}
	before := v.now - micros(olderThan)
	of := s.of(q) + " AND entry_id<>''"
	dead := fmt.Sprintf("(state='W' AND ends<=%d OR state='H' AND ends<=%d AND hold<=%d)", before, before, before)
	forgotten := fmt.Sprintf("(state='G' AND place<=%d)", v.now-micros(max(olderThan, remember)))
	answers, err := l.conn.Run(ctx, "SELECT COUNT(*)"+of+" AND "+dead+";DELETE"+of+" AND ("+dead+" OR "+forgotten+");SELECT COUNT(*)"+of)
	if err != nil {
		return 0, err
	}
	if len(answers) != 2 || len(answers[0]) != 1 || len(answers[1]) != 1 {
		return 0, &refusal{err: fmt.Errorf("%d answers to 2 questions", len(answers))}
	}
	var n numbers
	removed, left := int(n.read(answers[0][0][0])), n.read(answers[1][0][0])
	// Nothing shows that the name was looked at: neither is it used by that, nor
	// known since when the server runs.
	end := "UPDATE " + s.table + " SET ticket=seen WHERE lock_key='" + key + "' AND entry_id='';COMMIT"
	if left == 0 && v.name.seen <= before {
		removed++
		end = "DELETE" + s.of(q) + " AND entry_id='';COMMIT"
	}
	if n.err != nil {
		return 0, &refusal{err: n.err}
	}
	_, err = l.conn.Run(ctx, end)
	return removed, err
}
