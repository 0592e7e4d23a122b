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

// nearPlaces are the first places: waiters there make a whole step each time they look.
const nearPlaces = 3

// prolongPlace is the look of a waiter that is not near. It prolongs its place if a third of its
// time is over, and counts who is ahead if the queue has moved since it last did. It writes only
// its own row, so that a long queue does not hold up the grants at its front.
//
// If it is false the waiter must make a step: it is near now, all near ones are overdue, one lets
// its offer pass, it can be woken from now on, or something failed.
func (e *entry) prolongPlace(ctx context.Context, a *lease.Answer) bool {
	s, ttl := e.store, e.row.ttl
	canBeWoken := e.row.conn != 0
	if e.place <= nearPlaces || canBeWoken && (e.conn == nil || e.number != e.row.conn) {
		return false
	}
	clock, of := s.dialect.Clock, fmt.Sprintf("%s WHERE lock_key='%s'", s.table, e.key)
	own := fmt.Sprintf(" WHERE lock_key='%s' AND entry_id='%s' AND state='W' AND conn=%d", e.key, e.row.ID, e.row.conn)
	counted := fmt.Sprintf("(SELECT COUNT(*)+1 FROM %[1]s AND state='W' AND ord<'%[2]s'"+
		" AND ord>=(SELECT low FROM %[1]s AND entry_id=''))", of, order(e.row.Claim))
	answers, err := e.ask(ctx, s.dialect.Single+fmt.Sprintf(
		"UPDATE %[1]s SET ends=%[2]s+%[4]d,due=%[2]s+%[4]d%[3]s AND (ends<%[2]s+%[5]d OR due<%[2]s+%[6]d);"+
			"SELECT since,due-%[2]s,(SELECT COUNT(*) FROM %[1]s%[3]s),"+
			"(SELECT COUNT(*) FROM %[7]s AND state='O' AND due<=%[2]s),"+
			"CASE WHEN since=%[8]d THEN %[9]d ELSE %[10]s END FROM %[7]s AND entry_id=''",
		s.table, clock, own, micros(ttl), micros(ttl*2/3), micros(ttl/3), of, e.change, e.place, counted), shape{columns: 5})
	if err != nil || len(answers[0]) == 0 {
		return false
	}
	var change, late int64 // after late all near ones are overdue: they may have died with the holder
	var there, passed, place int
	err = scan(answers[0][0], &change, &late, &there, &passed, &place)
	if err != nil || there == 0 || passed > 0 || late <= 0 || place <= nearPlaces ||
		!canBeWoken && place <= s.listeners() {
		return false
	}
	a.Verdict, a.Place, a.Recheck = queue.Queued, place, ttl*2/3
	if !canBeWoken {
		a.Recheck = e.pauseBehind(place-1, s.listeners())
	}
	// If the near ones have died, not all the others come at once.
	a.Recheck = min(a.Recheck, min(a.Recheck, span(late))+time.Duration(place)*time.Millisecond)
	e.learn(place, change)
	return true
}

// sleep waits, for d at most, until the entry has an offer or must look for another reason.
// It accepts the offer: the entry is holding then, and its lease counts from sent.
func (e *entry) sleep(ctx context.Context, d time.Duration) (sent locks.Instant, err error) {
	s := e.store
	switch {
	case e.row.conn == 0:
		kept, listeners := s.keptConns(), s.listeners()
		if d > keepConn && e.place > kept || e.place > 2*kept+nearPlaces {
			e.closeConn()
		} else if listeners > 0 && e.place > listeners && e.place <= kept {
			return 0, e.pollMoves(ctx, d, shortestPoll+time.Duration(e.place-listeners)*keptPoll)
		}
		lease.Pause(ctx, d)
		return 0, nil
	case e.conn == nil || e.row.conn != e.number:
		lease.Pause(ctx, min(d, lease.RetryPause))
		return 0, nil
	}
	// After the limit it asks: a wake-up may be lost, or a waiter before it may let its offer pass.
	limit := min(d, offerLimit+time.Duration(e.place)*250*time.Millisecond)
	// A connection that has silently died never answers.
	bound, cancel := context.WithTimeout(ctx, limit+lease.AttemptLimit(e.row.ttl))
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
	answers, err := e.ask(bound, e.acceptText(), shape{columns: entryCount})
	if err != nil || len(answers[0]) == 0 {
		return 0, err
	}
	own := parseRow(answers[0][0])
	if own.flaw == nil && own.State == queue.Holding {
		e.row = own
	}
	return sent, nil
}

// pollMoves waits until the queue has moved, for d at most. That costs much less than to look for
// the place.
func (e *entry) pollMoves(ctx context.Context, d, pause time.Duration) error {
	text := fmt.Sprintf("SELECT since FROM %s WHERE lock_key='%s' AND entry_id=''", e.store.table, e.key)
	for end := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(end); {
		bound, cancel := context.WithTimeout(ctx, lease.AttemptLimit(e.row.ttl))
		rows, err := e.ask(bound, text, shape{columns: 1})
		cancel()
		if err != nil || len(rows[0]) == 0 || rows[0][0][0] != strconv.FormatInt(e.change, 10) {
			return err
		}
		lease.Pause(ctx, min(pause, time.Until(end)))
	}
	return nil
}

// acceptText accepts an offer, and reads the row. Only the connection to which the offer was made
// may accept: so the server has not been restarted since.
func (e *entry) acceptText() string {
	dialect := &e.store.dialect
	own := fmt.Sprintf(" WHERE lock_key='%s' AND entry_id='%s'", e.key, e.row.ID)
	return dialect.Begin + fmt.Sprintf(";UPDATE %[1]s SET state='H',due=0,conn=0,since=%[2]s,ends=%[2]s+ttl,"+
		"hold=CASE WHEN hold>0 THEN LEAST(hold+%[2]s,%[6]d) ELSE 0 END%[3]s AND state='O' AND conn=%[4]d AND evicted='';"+
		"SELECT %[5]s FROM %[1]s%[3]s;",
		e.store.table, dialect.Clock, own, e.row.conn, selected, locks.MaxMoment) + dialect.Commit
}

// The pauses of a waiter that nobody can wake.
const (
	shortestPoll = 50 * time.Millisecond
	frontPoll    = 200 * time.Millisecond // for each place, where nobody can be woken
	stepPoll     = 20 * time.Millisecond  // for each place behind those that can
	keptPoll     = 15 * time.Millisecond  // likewise, over a kept connection
)

// pace is how a waiter has advanced in the queue.
type pace struct {
	place  int           // 0: none
	change int64         // the name's, when the place was counted
	seen   time.Time     // when it was there
	moved  time.Time     // when it came there
	places int           // so many places in its last move,
	in     time.Duration // that took so long
}

func (p *pace) learn(place int, change int64) {
	now := time.Now()
	if place != p.place {
		p.places, p.in, p.moved = p.place-place, now.Sub(p.seen), now
	} else {
		p.places = 0
	}
	p.place, p.change, p.seen = place, change, now
}

// pauseBehind is how long a waiter sleeps that cannot be woken, with so many ahead of it.
// If the queue goes on at its pace, it is back before those that can be woken have had their
// turn. While nothing moves, it sleeps half as long as it has waited for a move.
func (q question) pauseBehind(ahead, listeners int) time.Duration {
	q.learn(ahead+1, q.change)
	behind := time.Duration(ahead - listeners)
	if behind < 0 || listeners == 0 {
		return min(q.row.ttl/3, time.Duration(q.place)*frontPoll)
	}
	pause := shortestPoll + behind*stepPoll
	if q.places > 0 {
		left := q.in * (behind + time.Duration(listeners/2)) / time.Duration(q.places)
		pause = min(pause, max(left/2, shortestPoll))
	}
	return min(q.row.ttl/3, max(pause, q.seen.Sub(q.moved)/2))
}
