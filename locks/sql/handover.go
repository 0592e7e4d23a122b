package sql

import (
	"context"
	"fmt"
	"math/rand/v2"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Release is what a holder of an exclusive slot knows when it gives it up in one round trip (see
// entry.handOver). The dialect writes the text.
//
// The text locks the name's row. It changes something only if the step of a release would do the same:
// the holder is the only one, its row is as it was granted, the epoch is the holder's, nobody is in
// quarantine, and the first waiter asks for the exclusive slot, too, and is not overdue. Then it makes
// the holder's row a tombstone. If the first waiter can be woken from this connection the text offers it
// the slot, and wakes it after the commit.
//
// Its last rows are one line that begins with two numbers: 1 if it has done so, else 0, and the number of the
// connection to which the slot was offered, or 0.
type Release struct {
	Table string // quoted

	// Name, Own, Front and OfTable are conditions: of the name's row, if that is as the holder knows it; of
	// the holder's row, if that is; of waiters; and of the table's own row.
	Name, Own, Front, OfTable string

	IsName string // the condition of the name's row
	IsOwn  string // the condition of the holder's row
	Others string // the condition of the rows of other holders

	// Alike and Reachable are conditions of the first waiter.
	Alike, Reachable string

	Tombstone string // assignments to the holder's row
	Offer     string // assignments to the waiter's row, without its fence

	Server string // the condition that the connection is the one that the holder knows
	Turn   int64
	Most   int64 // the counter is lower
}

// handOver tries to release the slot in one round trip. If it is false a step must do it. doubtful means
// that the slot may have been released all the same.
func (e *entry) handOver(ctx context.Context, a *lease.Answer) (done, doubtful bool) {
	c, r := &e.session, &e.row
	isPlain := r.State == queue.Holding && r.hold == 0 && r.Claim.Max == 1 && r.Claim.Weight == 1 && r.Evicted == ""
	if !isPlain || !c.isDirect() || e.name == "" || e.Epoch == "" {
		return false, false
	}
	text := e.store.dialect.Release(e.releaseText())
	answers, gone, err := c.conn.Release(ctx, text)
	var isDone bool
	var woken int64
	if err == nil {
		isDone, woken, err = readRelease(answers)
	}
	if err != nil {
		c.closeConn()
		return false, true
	}
	if !isDone {
		return false, false
	}
	a.Verdict, a.Existed, a.Epoch = queue.Released, true, e.Epoch
	if woken != 0 {
		e.afterOffer(ctx, woken, gone)
	}
	return true, false
}

// afterOffer sees to it that a waiter takes its offer, or that the next one gets it.
func (e *entry) afterOffer(ctx context.Context, conn int64, gone bool) {
	sleepers := []string{fmt.Sprint(conn)}
	if !gone {
		e.wake(ctx, &e.question, sleepers, true)
		return
	}
	if err := e.passOverGone(ctx, &e.question, sleepers); err != nil {
		e.closeConn()
	}
}

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

// releaseText is what the holder knows.
func (e *entry) releaseText() Release {
	s, r, f := e.store, &e.row, &e.facts
	clock := s.dialect.Clock
	ofKey := fmt.Sprintf("lock_key='%s'", e.key)
	rel := Release{
		Table: s.table, Turn: rand.Int64(), Most: locks.MaxNumber - stepNumbers,
		IsName: ofKey + " AND entry_id=''",
		IsOwn:  fmt.Sprintf("%s AND entry_id='%s'", ofKey, r.ID),
		Others: fmt.Sprintf("%s AND state IN ('N','H','O','E') AND entry_id<>'' AND entry_id<>'%s'", ofKey, r.ID),
		Front:  ofKey + " AND state='W'",
	}
	rel.Name = fmt.Sprintf("state='%c' AND name='%s' AND epoch='%s' AND quiet<=%s AND counter>=0 AND counter<=%d"+
		" AND moved>=0 AND moved<=counter", nameRow, escape(e.name, maxInfo), e.Epoch, clock, rel.Most)
	rel.Own = fmt.Sprintf("%s AND state='H' AND fence=%d AND evicted='' AND hold=0 AND weight=1 AND max_units=1 AND ends>%s",
		rel.IsOwn, r.Fence, clock)
	rel.OfTable = fmt.Sprintf("lock_key='' AND entry_id='' AND format=%d AND quiet<=%s", format, clock)
	rel.Alike = fmt.Sprintf("weight=1 AND max_units=1 AND evicted='' AND slots='' AND NOT %[1]s AND due>%[2]s AND ends>%[2]s"+
		" AND ttl>0 AND ttl<=%[3]d AND ends<=%[2]s+%[3]d", s.isNoID("entry_id"), clock, micros(locks.MaxTTL))
	rel.Reachable = fmt.Sprintf("conn>0 AND ends-ttl>=%d", f.start)
	if !s.dialect.Notifies {
		rel.Reachable += fmt.Sprintf(" AND login='%s'", f.login)
	}
	rel.Tombstone = fmt.Sprintf("state='G',ord='',ends=%s,due=0,ttl=0,weight=0,max_units=0,fence=0,since=0,hold=0,conn=0,"+
		"replaces='',slots='',evicted='',info='',login=''", clock)
	rel.Offer = fmt.Sprintf("state='O',slots='0',due=%s+LEAST(ttl,%d)", clock, micros(queue.OfferLimit))
	rel.Server = s.dialect.IsServer(f.conn, f.start)
	return rel
}
