package sql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// look locks the name's row and reads the queue. It revokes offers that were not accepted in
// time: from then on they cannot be accepted.
func (c *session) look(ctx context.Context, q *question) (*view, error) {
	s := c.store
	v := &view{limit: queue.ShownPlaces}
	q.turn = rand.Int64()
	text := s.lockText(q)
	for {
		statements, shapes := s.viewText(q, v.limit)
		answers, err := c.ask(ctx, text+strings.Join(statements, ";"), shapes...)
		if err == nil {
			err = v.read(s, q, answers)
		}
		isBriefNow := s.switchToBrief(err)
		if isBriefNow { // the transaction has ended with its connection
			q.turn = rand.Int64()
			text = s.lockText(q)
			continue
		}
		if err != nil {
			return nil, err
		}
		isNewName := v.begin(q)
		if isNewName {
			return v, nil
		}
		switch {
		case v.name == nil, v.name.turn != q.turn: // another turn: somebody has just made the row, and it is not locked
			return nil, errNoName
		case q.name != "" && v.name.name != q.name:
			return nil, &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
				"the hash of the name %q is also that of %q, which is in use: choose another name",
				q.name, locks.Printable(v.name.name, 300))}
		}
		text = s.revokeText(q, v)
		if v.needsMore() {
			v.limit *= 4
		} else if text == "" {
			return v, nil
		}
	}
}

// switchToBrief makes the store read less of each row from now on, if err says that an answer was too long. It
// reports whether that is new, so that another attempt may get an answer.
func (s *Store) switchToBrief(err error) bool {
	return errors.Is(err, network.ErrTooLong) && s.isBrief.CompareAndSwap(false, true)
}

// revokeText returns the statements that remove the waiters whose offers have expired. They get their old
// places when they ask again.
func (s *Store) revokeText(q *question, v *view) string {
	text := ""
	for i := range v.holders {
		h := &v.holders[i]
		if h.State != queue.Offered || h.due > v.now {
			continue
		}
		verb := "DELETE FROM " + s.table
		if h.Evicted != "" { // the tombstone tells the waiter of its eviction
			verb = fmt.Sprintf("UPDATE %s SET state='G',ends=%d,slots=''", s.table, v.now)
		}
		text += fmt.Sprintf("%s WHERE lock_key='%s' AND entry_id='%s' AND state='O';", verb, q.key, h.ID)
	}
	return text
}
