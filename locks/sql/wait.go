package sql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// nearPlaces are those of the waiters that make a whole step each time they look: they
// look after those before them.
const nearPlaces = 3

// prolongPlace prolongs the place of a waiter, if a third of its time is over, and looks how far it
// has come. Only its own row is written, so that a long queue does not hold up the grants at its front.
// In lateIn all who are near will be late if they do not look: they may have died with the
// holder. Where that is not enough (ok is false) the waiter has to make a step: if it has come near, if
// all who are near are late, if it could be woken from now on, and after anything that is not as usual.
func (c *session) prolongPlace(ctx context.Context, key string, k known) (place int, lateIn time.Duration, ok bool) {
	s := c.store
	if k.place <= nearPlaces {
		return 0, 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, lease.AttemptLimit(k.ttl))
	defer cancel()
	ahead, there, wakes := 0, 0, k.mine.conn != 0
	err := c.guard(func() error {
		if wakes && (c.conn == nil || c.number != k.mine.conn) {
			return lease.NoAnswer{}
		}
		clock := s.dialect.Clock()
		waiting := fmt.Sprintf("FROM %[1]s WHERE lock_key='%[2]s' AND state='W' AND ord>=(SELECT low FROM %[1]s WHERE lock_key='%[2]s' AND entry_id='')", s.table, key)
		answers, err := c.ask(ctx, fmt.Sprintf("%[1]s;UPDATE %[2]s SET ends=%[3]s+%[4]d,due=%[3]s+%[5]d WHERE lock_key='%[6]s' AND entry_id='%[7]s' AND state='W' AND (ends<%[3]s+%[5]d OR due<%[3]s+%[8]d);"+
			"SELECT COUNT(*)-1,COALESCE(SUM(CASE WHEN entry_id='%[7]s' THEN 1 ELSE 0 END),0),"+
			"(SELECT COALESCE(MAX(due),0) FROM (SELECT due %[9]s ORDER BY ord LIMIT %[10]d) near)-%[3]s %[9]s AND ord<='%[11]s';%[12]s",
			s.dialect.Begin(lockWait), s.table, clock, micros(k.ttl), micros(k.ttl*2/3), key, k.mine.ID, micros(k.ttl/3), waiting, nearPlaces, order(k.mine.Claim), s.dialect.Commit(false)))
		if err != nil {
			return err
		}
		var n numbers
		row := answers[0][0]
		ahead, there, lateIn = n.count(row[0]), n.count(row[1]), span(n.read(row[2]))
		return n.err
	})
	near := there == 0 || lateIn <= 0 || ahead < nearPlaces || !wakes && ahead < s.listeners()
	return ahead + 1, lateIn, err == nil && !near
}

// checkInterval is how long a waiter sleeps before it looks, without a lock, whether a wake-up was
// lost, or one before it lets its offer pass: a releaser may have died, or been too early.
func checkInterval(place int) time.Duration {
	return 5*time.Second + time.Duration(place)*50*time.Millisecond
}

// sleep waits until the entry has an offer, or has to look for another reason; for d at
// most. It accepts the offer: mine is the entry then, sent the moment from which its lease
// counts.
func (c *session) sleep(ctx context.Context, key string, k known, d time.Duration) (mine row, sent locks.Instant, err error) {
	err = c.guard(func() error {
		switch {
		case k.mine.conn == 0:
			if kept := c.store.kept(); d > keepConn && k.place > kept || k.place > 2*kept+nearPlaces {
				c.hangUp()
			}
			lease.Pause(ctx, d)
			return nil
		case c.conn == nil || k.mine.conn != c.number:
			lease.Pause(ctx, min(d, lease.RetryPause))
			return nil
		}
		// A connection that has silently died never answers.
		bound, cancel := context.WithTimeout(ctx, d+lease.AttemptLimit(k.ttl))
		defer cancel()
		offered, accept := c.store.acceptText(key, &k.mine)
		for end := c.store.clock().Add(d); ; {
			from := c.store.clock()
			limit := min(max(end.Sub(from), 0), checkInterval(k.place))
			if err := c.conn.Wait(bound, k.mine.ID, offered, limit); err != nil || ctx.Err() != nil {
				return err
			}
			sent = c.store.clock()
			answers, err := c.conn.Run(bound, accept)
			if err != nil || len(answers) != 2 || len(answers[0]) == 0 {
				return err
			}
			mine, err = parseRow(answers[0][0])
			woken := sent.Sub(from) < limit || len(answers[1]) > 0
			if err != nil || mine.State != queue.Waiting || woken || sent >= end {
				return err
			}
		}
	})
	if mine.State != queue.Holding {
		mine = row{}
	}
	return mine, sent, err
}

// acceptText is what accepts an offer, if there is one, and reads the row, and then whether
// others let theirs pass; offered tells before that whether there is something to be read.
// The connection must be the one that was to be woken: then the server has not been
// started since the offer was made.
func (s *Store) acceptText(key string, mine *row) (offered, accept string) {
	clock := s.dialect.Clock()
	of := fmt.Sprintf("%s WHERE lock_key='%s'", s.table, key)
	own := of + " AND entry_id='" + mine.ID + "'"
	offered = "SELECT COALESCE(MAX(CASE WHEN state='W' THEN 0 ELSE 1 END),1) FROM " + own
	return offered, strings.Join([]string{
		s.dialect.Begin(lockWait),
		fmt.Sprintf("UPDATE %s SET state='H',due=0,conn=0,since=%[2]s,hold=CASE WHEN hold>0 THEN hold+%[2]s ELSE 0 END,ends=%[2]s+ttl"+
			" WHERE lock_key='%[3]s' AND entry_id='%[4]s' AND state='O' AND conn=%[5]d AND evicted=''", s.table, clock, key, mine.ID, mine.conn),
		"SELECT " + columns + " FROM " + own,
		"SELECT entry_id FROM " + of + " AND state='O' AND due<=" + clock,
		s.dialect.Commit(true),
	}, ";")
}

// The pauses of a waiter that nobody can wake.
const (
	shortestPoll = 50 * time.Millisecond
	frontPoll    = 200 * time.Millisecond // of the first, where nobody can be woken
	stepPoll     = 20 * time.Millisecond  // for every place behind those that can
)

// pace is how a waiter has come further, as far as it has seen.
type pace struct {
	place  int
	seen   time.Time     // when it was there
	moved  time.Time     // when it came there
	places int           // so many places in one step,
	in     time.Duration // that took so long
}

func (p *pace) learn(place int) {
	now := time.Now()
	if place != p.place {
		p.places, p.in, p.moved = p.place-place, now.Sub(p.seen), now
	} else {
		p.places = 0
	}
	p.place, p.seen = place, now
}

// pause is how long a waiter sleeps that cannot be woken. It is to be back before those
// that can be have had their turn, if the queue goes on at its pace; while nothing moves,
// it sleeps for half of what it has slept already.
func (p *pace) pause(ttl time.Duration, listeners int) time.Duration {
	behind := time.Duration(p.place - 1 - listeners)
	if behind < 0 || listeners == 0 {
		return min(ttl/3, time.Duration(p.place)*frontPoll)
	}
	pause := shortestPoll + behind*stepPoll
	if p.places > 0 {
		left := p.in * (behind + time.Duration(listeners/2)) / time.Duration(p.places)
		pause = min(pause, max(left/2, shortestPoll))
	}
	return min(ttl/3, max(pause, p.seen.Sub(p.moved)/2))
}
