package sql

import (
	"slices"
	"time"

	"golock/locks/lease"
)

// call says to a waiter that it must look now.
func (t *step) call(r *row) {
	if t.called[r.id] || r.id == t.me {
		return
	}
	t.called[r.id], r.woken = true, true
	t.write("UPDATE %s SET woken=1 WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.q.key, r.id)
	if !t.reaches(r) {
		return
	}
	if text := t.store.dialect.Notify(r.id); text != "" {
		t.write("%s", text)
	}
	t.sleepers = append(t.sleepers, Sleeper{Table: t.store.table, Key: t.q.key, ID: r.id, Conn: r.wakeConn})
}

// wake tells the first waiter that it is its turn, or that what is in its way is
// a hold that ends by itself: then it looks when that is over. One whose connection has
// gone gets little time to show that it lives, and the next is told to look.
// If that is the caller, the result is when; 0 is not at all.
func (t *step) wake() time.Duration {
	if len(t.queue) == 0 || t.quarantineEnd() > t.v.now {
		return 0
	}
	if !t.fits(&t.queue[0]) {
		if slices.ContainsFunc(t.holders, func(h row) bool { return h.left(t.v.now) }) {
			t.call(&t.queue[0])
		}
		return 0
	}
	soon := time.Duration(0)
	for i := range t.queue {
		w := &t.queue[i]
		if w.id == t.me {
			return soon
		}
		if !t.q.dead[w.id] {
			if !t.reaches(w) && !w.woken { // it comes by itself, after a third of its TTL at the latest
				t.expect(w, max(w.ends-micros(w.ttl*2/3), t.v.now)+micros(lease.LongestAttempt))
			}
			t.call(w)
			break
		}
		t.expect(w, t.v.now+micros(suspect))
		soon = span(w.ends-t.v.now) + time.Millisecond
	}
	return 0
}

// reaches reports whether this client can wake a waiter, and see whether its
// connection has gone. Where that takes the server's list of connections, those
// of another account are not on it, be it of the same user from another host.
func (t *step) reaches(w *row) bool { return w.wakeConn != 0 && t.knows(w) }

func (t *step) knows(r *row) bool {
	login := loginOf(r.info)
	return login == "" || login == t.v.account || t.store.dialect.Notify(r.id) != ""
}

// canBeWoken reports whether a waiter can be woken by those who are there before it.
func (t *step) canBeWoken(ahead int) bool {
	if !t.q.listens || ahead >= t.store.target.waiters {
		return false
	}
	for _, rows := range [][]row{t.holders, t.queue[:min(ahead, len(t.queue))]} {
		for i := range rows {
			if !t.knows(&rows[i]) {
				return false
			}
		}
	}
	return true
}

// expect says that a waiter that has not looked until then is dead.
func (t *step) expect(w *row, until int64) {
	if w.ends <= until {
		return
	}
	w.ends = until
	t.write("UPDATE %s SET ends=%d WHERE lock_key='%s' AND entry_id='%s'", t.store.table, until, t.q.key, w.id)
}

// learnInterval learns how fast grants follow each other. Only those count that
// somebody had to wait for, and was there for: who came late would teach others
// to come late. And one slow command says little.
func (t *step) learnInterval() {
	if t.v.own == nil && len(t.v.front) == 0 {
		return
	}
	first := micros(firstInterval)
	if t.name.interval == 0 {
		t.name.interval = first
	}
	if last := t.v.now - t.name.granted; last > 0 && t.name.granted > 0 && t.v.own != nil && (t.v.own.wakeConn != 0 || !t.q.listens) {
		t.name.interval += (min(last, 2*t.name.interval+first) - t.name.interval) / 4
	}
	t.name.granted, t.nameChanged = t.v.now, true
}

// The pauses of a waiter that nobody can wake.
const (
	shortestPoll  = 50 * time.Millisecond
	frontPoll     = 200 * time.Millisecond // of the first, where nobody listens
	stepPoll      = 300 * time.Millisecond // at most for every place further back, if nothing moves
	firstInterval = 8 * time.Millisecond   // of a name that has none yet
)

// pollPause is how long such a waiter sleeps; see Store.pollPause.
func (t *step) pollPause(ahead int, ttl time.Duration) time.Duration {
	if !t.q.listens || ahead < t.store.target.waiters {
		return min(ttl/3, time.Duration(ahead+1)*frontPoll)
	}
	return t.store.pollPause(ahead, ttl, span(t.name.interval), span(t.v.now-t.lastGrant()))
}

// pollPause is how long a waiter sleeps that has so many ahead of it, more than
// listen. It must be back before they have all had their turn, at the pace that
// the name has had lately (0: it has none yet). When nothing has moved for some
// time (still), it may sleep for half of that in addition: what it then loses is
// little of what it has waited already.
func (s *Store) pollPause(ahead int, ttl, pace, still time.Duration) time.Duration {
	if pace == 0 {
		pace = firstInterval
	}
	turn := pace * time.Duration(max(ahead-s.target.waiters/2, 1)) * 3 / 4
	turn += min(max(still, 0)/2, stepPoll*time.Duration(ahead-s.target.waiters+4))
	return min(ttl/3, max(turn, shortestPoll))
}

func (t *step) lastGrant() int64 {
	if len(t.holders) == 0 || len(t.queue) > 0 && t.fits(&t.queue[0]) {
		return t.v.now // one is just being made
	}
	last := t.name.granted
	for i := range t.holders {
		last = max(last, t.holders[i].since)
	}
	return last
}
