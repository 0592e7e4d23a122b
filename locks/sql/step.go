package sql

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// The times of a queue.
const (
	remember = 10 * time.Minute       // that an id is known to have gone
	suspect  = 500 * time.Millisecond // left to a waiter whose connection has gone

	tidyEvery = 16 // of so many who leave about one removes what is forgotten
)

// step is one decision: what a view and a question come to. It touches nothing
// but its own copies; what is to be written is collected in writes.
type step struct {
	store *Store
	q     *question
	v     *view
	me    string // the entry that asks; "" if somebody else asks about it

	name    nameState
	holders []row // the live ones
	queue   []row // the live ones of the front, in their order
	changed bool  // somebody has gone

	writes      []string
	nameChanged bool // the row of the name has to be written
	lasting     bool // a crash of the server must not undo it
	sleepers    []Sleeper
	called      map[string]bool
	err         error // something could not be written
}

// answer is what a step tells its caller.
type answer struct {
	lease.Answer
	name     string
	mine     row
	inside   string // nested: the id of the enclosing run
	holders  []row  // refused: who is in the way
	replaced []row  // whom a newcomer has evicted
	now      int64
	keepConn bool // somebody waits, and holders are few
}

func verdict(v lease.Verdict) answer { return answer{Answer: lease.Answer{Verdict: v}} }

func released(existed bool) answer {
	return answer{Answer: lease.Answer{Verdict: lease.Released, Existed: existed}}
}

func evictedBy(by string) answer {
	return answer{Answer: lease.Answer{Verdict: lease.Evicted, By: by}}
}

func granted(v lease.Verdict, mine row) answer {
	return answer{Answer: lease.Answer{Verdict: v}, mine: mine}
}

// again is the verdict that clean-up came first: ask once more.
const again lease.Verdict = "again"

func micros(d time.Duration) int64 { return d.Microseconds() }

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// decide makes the step of a question.
func (s *Store) decide(q *question, v *view) (t *step, a answer, err error) {
	t = &step{store: s, q: q, v: v, me: q.mine.id, name: *v.name, called: map[string]bool{}, lasting: true}
	if q.mode == lease.Evict || q.mode == checkDead {
		t.me = ""
	}
	// The step after this one takes it for a proof that nothing was forgotten. A
	// name without an epoch has not had any entries yet.
	if t.name.epoch != "" {
		t.checkEpoch()
	}
	if !t.reap() {
		return t, verdict(again), nil
	}
	switch q.mode {
	case lease.Join:
		a = t.join()
	case lease.Renew:
		a = t.renew()
	case lease.Release, lease.Leave:
		a = t.release()
	case lease.Evict:
		a = t.evict()
	case checkDead:
		t.wake()
	}
	a.QuarantineCause = "the server has restarted, or its table was emptied or made again"
	a.Epoch, a.name, a.now = t.name.epoch, t.name.name, v.now
	a.keepConn = len(t.queue) > 0 && len(t.holders) <= s.target.waiters
	return t, a, t.err
}

// checkEpoch finds out whether this is still the server that the name was last used
// on. An epoch is a stretch of time in which nothing was forgotten: a holder that is
// missing in its own epoch was taken out, in another one it may come back. A server
// that was started, or took over, since then may have forgotten the last commits:
// nothing new is granted until those who held a slot have had the time to say so.
func (t *step) checkEpoch() {
	// Several servers may answer at one address: the latest are known.
	servers := strings.Fields(t.name.server)
	here := escape(t.v.server, maxServer)
	if t.name.epoch != "" && slices.Contains(servers, here) && t.v.start <= t.name.seen {
		return
	}
	if span := micros(t.store.target.Quarantine); span > 0 {
		switch {
		case t.name.epoch == "" && here == t.v.tableServer && t.v.start <= t.v.tableMade: // no name of this table can have been forgotten
		case t.name.epoch == "", t.v.start > t.name.seen:
			t.name.quiet = t.v.start + span
		default: // it ran already, beside the other one
			t.name.quiet = t.v.now + span
		}
	}
	if t.name.epoch == "" && t.v.tableQuiet > 0 {
		// The table has lost what it held, and was made again by somebody with
		// perhaps a shorter lease. Those who held this name are known to none.
		t.name.quiet = max(t.name.quiet, t.v.tableMade+micros(t.q.mine.ttl))
	}
	t.name.epoch = fmt.Sprintf("%s-%d", t.q.mine.id, t.v.now)
	servers = slices.DeleteFunc(servers, func(s string) bool { return s == here })
	t.name.server = strings.Join(append([]string{here}, servers[:min(len(servers), manyServers-1)]...), " ")
	t.nameChanged = true
}

// quarantineEnd is from when on slots may be granted.
func (t *step) quarantineEnd() int64 { return max(t.name.quiet, t.v.tableQuiet) }

// quarantineLeft is how long a request waits for nothing but the quarantine and those
// before it.
func (t *step) quarantineLeft(mine *row) time.Duration {
	if !t.fits(mine) {
		return 0
	}
	return span(max(t.quarantineEnd()-t.v.now, 0))
}

// reap drops those whose time is over. It reports whether a live waiter, or
// the end of the queue, is in sight.
func (t *step) reap() bool {
	for i := range t.v.holders {
		if h := &t.v.holders[i]; h.until() <= t.v.now {
			t.drop(h.id)
			t.changed = true
		} else {
			t.holders = append(t.holders, *h)
		}
	}
	dead := 0
	for i := range t.v.front {
		if w := &t.v.front[i]; w.ends <= t.v.now {
			dead++
			t.changed = true
			if !t.v.more {
				t.drop(w.id)
			}
		} else {
			t.queue = append(t.queue, *w)
		}
	}
	if dead > 0 && t.v.more {
		t.write("DELETE FROM %s WHERE lock_key='%s' AND state='W' AND ends<=%d", t.store.table, t.q.key, t.v.now)
	}
	if !t.v.living {
		t.v.waiters -= min(dead, t.v.waiters)
	}
	if t.v.own != nil && t.v.own.state != gone && t.v.own.until() <= t.v.now {
		t.drop(t.v.own.id)
		t.v.own = nil
	}
	return len(t.queue) > 0 || !t.v.more
}

func claims(rows []row) []locks.Claim {
	all := make([]locks.Claim, len(rows))
	for i := range rows {
		all[i] = rows[i].claim
	}
	return all
}

func (t *step) fits(r *row) bool { return locks.Admits(claims(t.holders), r.claim) }

func (t *step) join() answer {
	q, own := t.q, t.v.own
	hasGone := own != nil && (own.state == gone || own.left(t.v.now))
	if hasGone && own.evicted != "" {
		return evictedBy(own.evicted)
	}
	if hasGone && !q.noWait && len(q.within) == 0 {
		return verdict(lease.Gone)
	}
	t.checkEpoch()
	mine := q.mine
	mine.woken, mine.evicted, mine.info = false, "", withLogin(mine.info, t.v.account)
	if own != nil && own.state == holding && !hasGone {
		if own.evicted != "" { // before it knew that it held
			by := own.evicted
			t.forget(by)
			t.wake()
			return evictedBy(by)
		}
		mine = *own
		mine.ends = t.v.now + micros(mine.ttl)
		t.save(&mine)
		return granted(lease.Granted, mine)
	}
	if own != nil && own.state == waiting {
		mine.claim.Ticket, mine.since = own.claim.Ticket, own.since
	}
	isNew := mine.claim.Ticket == 0
	if isNew {
		mine.claim.Ticket, mine.since = t.name.counter, t.v.now
	}
	ahead := t.ahead(&mine)
	may := func() bool { return !hasGone && ahead == 0 && t.quarantineEnd() <= t.v.now && t.fits(&mine) }
	if may() {
		return t.grant(mine)
	}
	inside := ""
	for _, id := range q.within {
		if slices.ContainsFunc(t.holders, func(r row) bool { return r.id == id && !r.left(t.v.now) }) { // nobody is inside a run that has ended
			inside = id
		}
	}
	full := isNew && !q.noWait && inside == "" && q.maxQueue != nil && t.v.waiters-t.replaceableAhead(&mine) >= *q.maxQueue
	if inside != "" || q.noWait || full {
		if own != nil && !hasGone {
			t.forget("")
		}
		if t.changed {
			t.wake()
		}
		a := verdict(lease.Busy)
		a.Waiters, a.Full, a.holders = t.v.waiters, full, t.holders
		if !hasGone && !(full && *q.maxQueue > 0) {
			a.Quarantine = t.quarantineLeft(&mine)
		}
		if inside != "" {
			a.Verdict, a.inside = lease.Nested, inside
		}
		return a
	}
	if hasGone {
		return verdict(lease.Gone)
	}
	var replaced []row
	if isNew && mine.replaces != locks.ReplaceNone {
		replaced = t.replace(&mine)
		ahead = t.ahead(&mine)
	}
	a := answer{}
	if may() {
		a = t.grant(mine)
	} else {
		a = t.queueUp(mine, ahead)
		t.lasting = t.nameChanged || len(replaced) > 0 // who is forgotten comes again, with its ticket
	}
	a.replaced = replaced
	return a
}

// ahead inserts the caller into t.queue, which writes nothing, and counts the
// waiters before it.
func (t *step) ahead(mine *row) int {
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == mine.id })
	at, _ := slices.BinarySearchFunc(t.queue, mine, func(r row, m *row) int {
		if r.before(m) {
			return -1
		}
		return 1
	})
	if at == len(t.queue) && t.v.more {
		return max(at, t.v.before)
	}
	t.queue = slices.Insert(t.queue, at, *mine)
	return at
}

func (t *step) grant(mine row) answer {
	t.learnInterval()
	mine.state, mine.wakeConn, mine.since, mine.fence = holding, 0, t.v.now, t.name.counter
	mine.ends = t.v.now + micros(mine.ttl)
	if mine.hold > 0 {
		mine.hold += t.v.now
	}
	taken := make(map[int]bool)
	for _, h := range t.holders {
		for _, slot := range h.slots {
			taken[slot] = true
		}
	}
	mine.slots = locks.FreeSlots(func(slot int) bool { return taken[slot] }, mine.claim.Weight)
	t.save(&mine)
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == mine.id })
	t.holders = append(t.holders, mine)
	t.wake()
	return granted(lease.Granted, mine)
}

func (t *step) queueUp(mine row, ahead int) answer {
	t.raiseCounter(mine.claim.Ticket)
	mine.state = waiting
	mine.ends = t.v.now + micros(mine.ttl)
	mine.wakeConn = 0
	if t.canBeWoken(ahead) {
		mine.wakeConn = t.v.conn
	}
	t.save(&mine)
	if mine.wakeConn != 0 {
		if text := t.store.dialect.Listen(mine.id); text != "" {
			t.write("%s", text)
		}
	}
	look := mine.ttl / 3
	sooner := func(moment int64) { look = min(look, span(max(moment-t.v.now, 0))+time.Millisecond) }
	if t.changed || ahead == 1 {
		if soon := t.wake(); soon > 0 {
			look = min(look, soon)
		}
	}
	switch ahead {
	case 0:
		for _, h := range t.holders {
			sooner(h.until())
		}
		if t.quarantineEnd() > t.v.now {
			sooner(t.quarantineEnd())
		}
	default: // it is the first when those before it are over, who may have died
		if ahead <= len(t.queue) {
			over := int64(0)
			for i := range t.queue[:ahead] {
				over = max(over, t.queue[i].ends)
			}
			sooner(over)
		}
	}
	if mine.wakeConn == 0 {
		look = min(look, t.pollPause(ahead, mine.ttl))
	}
	a := granted(lease.Queued, mine)
	a.Place, a.Recheck, a.Quarantine = ahead+1, look, t.quarantineLeft(&mine)
	return a
}

func (t *step) renew() answer {
	own := t.v.own
	if own != nil && own.state == holding && !own.left(t.v.now) {
		if own.evicted != "" {
			return evictedBy(own.evicted)
		}
		mine := *own
		mine.ends = t.v.now + micros(mine.ttl)
		t.write("UPDATE %s SET ends=%d WHERE lock_key='%s' AND entry_id='%s'", t.store.table, mine.ends, t.q.key, mine.id)
		if t.changed {
			t.wake()
		}
		return granted(lease.Held, mine)
	}
	if own != nil && own.state == gone && own.evicted != "" {
		return evictedBy(own.evicted)
	}
	if own == nil && t.q.known {
		t.checkEpoch()
		if a, ok := t.reassert(); ok {
			return a
		}
	}
	if t.changed {
		t.wake()
	}
	return verdict(lease.Lost)
}

// reassert puts back a holder that the store has forgotten, if its slots are
// still free.
func (t *step) reassert() (answer, bool) {
	mine := t.q.mine
	if t.q.epoch == t.name.epoch || !t.fits(&mine) {
		return answer{}, false
	}
	for _, h := range t.holders {
		for _, slot := range h.slots {
			if slices.Contains(mine.slots, slot) {
				return answer{}, false
			}
		}
	}
	mine.state, mine.ends = holding, t.v.now+micros(mine.ttl)
	t.raiseCounter(mine.fence)
	t.save(&mine)
	t.holders = append(t.holders, mine)
	if t.changed {
		t.wake()
	}
	return granted(lease.Held, mine), true
}

// raiseCounter makes later tickets and fences higher than one that an entry brings
// back: the store may have lost it.
func (t *step) raiseCounter(number int64) {
	if number > t.name.counter {
		t.name.counter, t.nameChanged = number, true
	}
}

func (t *step) release() answer {
	own := t.v.own
	was := own != nil && own.state != gone && !own.left(t.v.now)
	if own != nil && own.left(t.v.now) {
		return released(false)
	}
	if t.q.mode == lease.Release && was && own.state == holding && own.hold > t.v.now && own.evicted == "" {
		t.write("UPDATE %s SET ttl=0,ends=%d,evicted='' WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.v.now, t.q.key, own.id)
		for i := range t.holders {
			if h := &t.holders[i]; h.id == own.id {
				h.ttl, h.ends = 0, t.v.now
			}
		}
		t.wake()
		return released(true)
	}
	if own == nil || own.state != gone {
		sleeper := own != nil && own.state == waiting && own.wakeConn != 0
		t.forget("")
		if sleeper && t.store.dialect.Notify("") == "" { // its statement sleeps on, although nobody waits for the answer
			t.sleepers = append(t.sleepers, Sleeper{Table: t.store.table, Key: t.q.key, ID: own.id, Conn: own.wakeConn})
		}
	}
	before := len(t.sleepers)
	t.wake()
	if was && own.state == holding && len(t.sleepers) > before && t.fits(&t.queue[0]) {
		t.lasting = false // the grant that follows is, and with it all that came before
	}
	return released(was)
}
