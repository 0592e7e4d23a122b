package sql

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// prolongPlace prolongs the place of a waiter beyond the first StepPlaces, and counts who is ahead if the
// queue has moved. It writes only the waiter's own row, so that a long queue does not hold up the grants at
// its front.
//
// It returns false if the waiter must make a step: it is among the first now, all of the first are overdue,
// an offer has expired, it can be woken from now on, or something failed.
func (e *entry) prolongPlace(ctx context.Context, a *lease.Answer) bool {
	s := e.store
	canBeWoken := e.row.wakeConn != 0
	hasLostConn := canBeWoken && (e.conn == nil || e.number != e.row.wakeConn)
	if e.place <= queue.StepPlaces || hasLostConn {
		return false
	}
	answers, err := e.ask(ctx, s.dialect.Single+e.prolongText()+";"+e.lookText(), shape{columns: 5})
	if err != nil || len(answers[0]) == 0 {
		return false
	}
	var moved int64
	var late int64 // the time until all of the first waiters are overdue: they may have died with the holder
	var waitingRows, expiredOffers, place int
	err = scan(answers[0][0], &moved, &late, &waitingRows, &expiredOffers, &place)
	if err != nil || waitingRows == 0 || expiredOffers > 0 || late <= 0 {
		return false
	}
	getsWoken := !canBeWoken && place <= s.abilities().Wakes
	if place <= queue.StepPlaces || getsWoken {
		return false
	}
	e.learn(place, moved, e.pace.At(place, time.Now()))
	a.Verdict, a.Place = queue.Queued, place
	a.Nap = s.abilities().AfterLook(span(late), e.waiter(place, canBeWoken, e.pace))
	return true
}

// whereWaiting returns the condition of the entry's row, if it waits and has the connection that it had.
func (e *entry) whereWaiting() string {
	return fmt.Sprintf(" WHERE lock_key='%s' AND entry_id='%s' AND state='W' AND conn=%d", e.key, e.row.ID, e.row.wakeConn)
}

// prolongText returns the statement that prolongs the entry's place for a TTL, if a third of one is over since
// the last time, or if the entry would soon be overdue.
func (e *entry) prolongText() string {
	ttl, every := e.row.ttl, queue.AskEvery(e.row.ttl)
	return fmt.Sprintf("UPDATE %[1]s SET ends=%[2]s+%[4]d,due=%[2]s+%[4]d%[3]s AND (ends<%[2]s+%[5]d OR due<%[2]s+%[6]d)",
		e.store.table, e.store.dialect.Clock, e.whereWaiting(), micros(ttl), micros(ttl-every), micros(every))
}

// lookText returns the statement that reads the name's moved and late, the number of the entry's rows, which is 0
// or 1, the number of offers that have expired, and the entry's place. If the queue has not moved, the place is
// the old one.
func (e *entry) lookText() string {
	table, clock := e.store.table, e.store.dialect.Clock
	ofName := fmt.Sprintf("%s WHERE lock_key='%s'", table, e.key)
	waitingRows := "(SELECT COUNT(*) FROM " + table + e.whereWaiting() + ")"
	expiredOffers := "(SELECT COUNT(*) FROM " + ofName + " AND state='O' AND due<=" + clock + ")"
	counted := fmt.Sprintf("(SELECT COUNT(*)+1 FROM %[1]s AND state='W' AND ord<'%[2]s'"+
		" AND ord>=(SELECT low FROM %[1]s AND entry_id=''))", ofName, order(e.row.Claim))
	place := fmt.Sprintf("CASE WHEN moved=%d THEN %d ELSE %s END", e.moved, e.place, counted)
	return "SELECT moved,late-" + clock + "," + waitingRows + "," + expiredOffers + "," + place +
		" FROM " + ofName + " AND entry_id=''"
}

// learn notes the place of the entry, and when the queue had moved last.
func (q *question) learn(place int, moved int64, pace queue.Pace) {
	q.place, q.moved, q.pace = place, moved, pace
}

// waiter returns the waiter that a schedule is for. Each place counts as a turn: if several waiters are let in
// at once, those behind them look no sooner, because that would cost the server more.
func (q *question) waiter(place int, isWoken bool, pace queue.Pace) queue.Waiter {
	return queue.Waiter{Place: place, Turns: place, TTL: q.row.ttl, IsWoken: isWoken, Pace: pace}
}

// sleep waits, as nap says, until the entry has an offer or must look for another reason. It accepts an offer:
// then the entry is holding, and its lease counts from sent.
func (e *entry) sleep(ctx context.Context, nap queue.Nap) (sent locks.Instant, err error) {
	s := e.store
	switch {
	case e.row.wakeConn == 0 && nap.Peek.Moves > 0:
		return 0, e.peek(ctx, nap)
	case e.row.wakeConn == 0:
		if !nap.KeepsConnection {
			e.closeConn()
		}
		lease.Pause(ctx, nap.For)
		return 0, nil
	case e.conn == nil || e.row.wakeConn != e.number:
		lease.Pause(ctx, min(nap.For, lease.RetryPause))
		return 0, nil
	}
	limit := nap.For
	// A connection that has silently died never answers.
	bound, cancel := context.WithTimeout(ctx, limit+lease.AttemptLimit(e.row.ttl, s.distance()))
	defer cancel()
	offered := fmt.Sprintf("SELECT COALESCE(MAX(CASE WHEN state='W' THEN 0 ELSE 1 END),1) FROM %s"+
		" WHERE lock_key='%s' AND entry_id='%s'", s.table, e.key, e.row.ID)
	from := locks.BootTime()
	if err := e.conn.Wait(bound, e.row.ID, offered, limit); err != nil || ctx.Err() != nil {
		return 0, err
	}
	if sent = locks.BootTime(); sent.Sub(from) >= limit {
		return 0, nil
	}
	// Woken for whatever reason: the UPDATE accepts an offer if there is one.
	answers, err := e.ask(bound, e.acceptText(), shape{columns: entryCount})
	if err != nil || len(answers[0]) == 0 {
		return 0, err
	}
	accepted := parseRow(answers[0][0])
	if accepted.flaw == nil && accepted.State == queue.Holding {
		e.row = accepted
	}
	return sent, nil
}

// peek waits until the queue has moved. That costs the server much less than to count the place.
func (e *entry) peek(ctx context.Context, nap queue.Nap) error {
	text := fmt.Sprintf("SELECT moved FROM %s WHERE lock_key='%s' AND entry_id=''", e.store.table, e.key)
	begun := time.Now()
	end := begun.Add(nap.For)
	for ctx.Err() == nil && time.Now().Before(end) {
		bound, cancel := context.WithTimeout(ctx, lease.AttemptLimit(e.row.ttl, e.store.distance()))
		rows, err := e.ask(bound, text, shape{columns: 1})
		cancel()
		if err != nil {
			return err
		}
		hasMoved := len(rows[0]) == 0 || rows[0][0][0] != strconv.FormatInt(e.moved, 10)
		if hasMoved {
			return nil
		}
		lease.Pause(ctx, min(nap.Peek.Pause(time.Since(begun)), time.Until(end)))
	}
	return nil
}

// acceptText returns the statements that accept an offer and read the row. Only the connection to which the
// offer was made may accept it, which proves that the server was not restarted since.
func (e *entry) acceptText() string {
	dialect := &e.store.dialect
	ofEntry := fmt.Sprintf(" WHERE lock_key='%s' AND entry_id='%s'", e.key, e.row.ID)
	return dialect.Begin + fmt.Sprintf(";UPDATE %[1]s SET state='H',due=0,conn=0,since=%[2]s,ends=%[2]s+ttl,"+
		"hold=CASE WHEN hold>0 THEN LEAST(hold+%[2]s,%[6]d) ELSE 0 END%[3]s AND state='O' AND conn=%[4]d AND evicted='';"+
		"SELECT %[5]s FROM %[1]s%[3]s;",
		e.store.table, dialect.Clock, ofEntry, e.row.wakeConn, selected, locks.MaxMoment) + dialect.Commit
}
