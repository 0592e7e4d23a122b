package sql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Release has the parts of the statements with which the holder of an exclusive slot gives it up in one round
// trip (see entry.handOver). The dialect puts them together to a text (Dialect.Release).
//
// The text locks the name's row. It changes something only if the step of a release would do the same:
//   - the holder is the only holder, its row is as it was granted, and the epoch is the holder's;
//   - neither the name nor the table is in quarantine;
//   - the first waiter, if there is one, asks for the exclusive slot too, is not overdue, and can be woken from
//     this connection. (A waiter that cannot be woken must ask by itself: see queue.Decision.Due.)
//
// Then it makes the holder's row a tombstone, offers the slot to the first waiter, and wakes it after the commit.
//
// The last statement with rows gives one line, which begins with two numbers. The first is 1 if the slot was
// released, else 0. The second is the number of the connection to which the slot was offered, or 0.
type Release struct {
	Table string // quoted

	IsName   string // the condition that finds the name's row
	IsHolder string // the condition that finds the holder's row
	Front    string // the condition that finds the waiters
	Others   string // the condition that finds the other holders

	Name    string // the condition that the name's row is as the holder knows it
	Granted string // the condition that finds the holder's row, if it is as it was granted
	OfTable string // the condition that finds the table's own row, if there is no quarantine

	Ready string // the condition that the first waiter can be offered the slot

	Tombstone string // assignments to the holder's row
	Offer     string // assignments to the waiter's row, without its fence

	Server string // the condition that the connection is the one that the holder knows
	Turn   int64  // the turn of the name's row from now on (nameState.turn)
	Most   int64  // the largest counter of the name to which the numbers of a step can be added
}

// handOver tries to release the slot in one round trip, and fills in the answer. If done is false, a step must
// release it. doubtful means that the slot may have been released all the same. limit is the time of the whole
// attempt.
func (e *entry) handOver(ctx context.Context, limit time.Duration, a *lease.Answer) (done, doubtful bool) {
	c, r := &e.session, &e.row
	isPlain := r.State == queue.Holding && r.hold == 0 && r.Claim.Max == 1 && r.Claim.Weight == 1 && r.Evicted == ""
	if !isPlain || !c.isDirect() || e.name == "" || e.Epoch == "" {
		return false, false
	}
	text := e.store.dialect.Release(e.releaseParts())
	// If the network has dropped the connection, which nobody has used since the last renewal, the rest of the
	// attempt is enough to connect and to make the step.
	const trips = 4
	quick, cancel := context.WithTimeout(ctx, max(limit/3, trips*e.store.distance().Trip))
	answers, err := c.conn.Release(quick, text)
	cancel()
	isDone, woken, unreadable := readRelease(answers)
	if err != nil {
		c.closeConn()
		if isDone && woken != 0 { // the offer may stand, and its wake-up have failed
			c.wake(ctx, &e.question, []string{fmt.Sprint(woken)})
		}
		return false, true
	}
	if unreadable != nil {
		c.closeConn()
		return false, true
	}
	if !isDone {
		return false, false
	}
	a.Verdict, a.Existed, a.Epoch = queue.Released, true, e.Epoch
	if woken != 0 {
		// A waiter whose connection has ended gets the time to come back that watch gives it.
		const hasWoken = true // the text has done it
		c.watch(ctx, &e.question, []string{fmt.Sprint(woken)}, hasWoken)
	}
	return true, false
}

// readRelease reads the answers to the text of a Release. woken is the connection to which the slot was
// offered, or 0.
func readRelease(answers []Rows) (isDone bool, woken int64, err error) {
	last := Rows{}
	if len(answers) > 0 {
		last = answers[len(answers)-1]
	}
	if len(last) == 0 || len(last[0]) < 2 {
		return false, 0, fmt.Errorf("the server answers something else than it was asked: %.200q", fmt.Sprint(answers))
	}
	var done int
	err = scan(last[0], &done, &woken)
	return done == 1, woken, err
}

// releaseParts returns the parts of a Release from what the holder knows.
func (e *entry) releaseParts() Release {
	s, r, f := e.store, &e.row, &e.facts
	clock := s.dialect.Clock
	ofKey := fmt.Sprintf("lock_key='%s'", e.key)
	rel := Release{
		Table: s.table, Turn: rand.Int64(), Most: locks.MaxNumber - stepNumbers,
		IsName:   ofKey + " AND entry_id=''",
		IsHolder: fmt.Sprintf("%s AND entry_id='%s'", ofKey, r.ID),
		Others:   fmt.Sprintf("%s AND state IN ('N','H','O','E') AND entry_id<>'' AND entry_id<>'%s'", ofKey, r.ID),
		Front:    ofKey + " AND state='W'",
	}
	rel.Name = fmt.Sprintf("state='%c' AND name='%s' AND epoch='%s' AND quiet<=%s AND counter>=0 AND counter<=%d"+
		" AND moved>=0 AND moved<=counter", nameRow, escape(e.name, maxInfo), e.Epoch, clock, rel.Most)
	rel.Granted = fmt.Sprintf("%s AND state='H' AND fence=%d AND evicted='' AND hold=0 AND weight=1 AND max_units=1"+
		" AND ends>%s", rel.IsHolder, r.Fence, clock)
	rel.OfTable = fmt.Sprintf("lock_key='' AND entry_id='' AND format=%d AND quiet<=%s", format, clock)
	rel.Ready = fmt.Sprintf("weight=1 AND max_units=1 AND evicted='' AND slots='' AND NOT %[1]s"+
		" AND due>%[2]s AND ends>%[2]s AND ttl>0 AND ttl<=%[3]d AND ends<=%[2]s+%[3]d",
		s.isNoID("entry_id"), clock, micros(locks.MaxTTL))
	rel.Ready += fmt.Sprintf(" AND conn>0 AND ends-ttl>=%d", f.start)
	if !s.dialect.Notifies {
		rel.Ready += fmt.Sprintf(" AND login='%s'", f.login)
	}
	rel.Tombstone = fmt.Sprintf("state='G',ord='',ends=%s,due=0,ttl=0,weight=0,max_units=0,fence=0,since=0,hold=0,conn=0,"+
		"replaces='',slots='',evicted='',info='',login=''", clock)
	rel.Offer = fmt.Sprintf("state='O',slots='0',due=%s+LEAST(ttl,%d)", clock, micros(queue.OfferLimit))
	rel.Server = s.dialect.IsServer(f.conn, f.start)
	return rel
}
