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

	writes   []string
	renamed  bool // name has to be written
	lasting  bool // a crash of the server must not undo it
	sleepers []Sleeper
	called   map[string]bool
	err      error // something could not be written
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
func span(us int64) time.Duration  { return time.Duration(us) * time.Microsecond }

// decide makes the step of a question.
func (s *Store) decide(q *question, v *view) (t *step, a answer, err error) {
	t = &step{store: s, q: q, v: v, me: q.mine.id, name: *v.name, called: map[string]bool{}, lasting: true}
	if q.mode == lease.Evict || q.mode == checkDead {
		t.me = ""
	}
	// The step after this one takes it for a proof that nothing was forgotten. A
	// name without an epoch has not had any entries yet.
	if t.name.epoch != "" {
		t.enter()
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

// enter finds out whether this is still the server of before. An epoch is a
// stretch of time in which nothing was forgotten: a holder that is missing in
// its own epoch was taken out, in another one it may come back. A server that
// was started, or took over, since the name was last used may have forgotten
// the last commits: nothing new is granted until those who held a slot have had
// the time to say so.
func (t *step) enter() {
	// Servers behind one address take turns: those of lately are known.
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
	t.renamed = true
}

// quietUntil is when something may be granted again.
func (t *step) quietUntil() int64 { return max(t.name.quiet, t.v.tableQuiet) }

// quarantineLeft is how long a request waits for nothing but the quarantine and those
// before it.
func (t *step) quarantineLeft(mine *row) time.Duration {
	if !t.fits(mine) {
		return 0
	}
	return span(max(t.quietUntil()-t.v.now, 0))
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

func (t *step) write(format string, args ...any) {
	t.writes = append(t.writes, fmt.Sprintf(format, args...))
}

func (t *step) drop(id string) {
	t.write("DELETE FROM %s WHERE lock_key='%s' AND entry_id='%s'", t.store.table, t.q.key, id)
}

// save writes the caller's row.
func (t *step) save(r *row) {
	r.id = t.q.mine.id
	fields, err := r.fields()
	if err != nil {
		t.err = err
		return
	}
	if t.v.own == nil {
		t.write("INSERT INTO %s (lock_key,%s) VALUES ('%s',%s)", t.store.table, columns, t.q.key, strings.Join(fields, ","))
		return
	}
	var b strings.Builder
	for i, name := range strings.Split(columns, ",") {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + "=" + fields[i])
	}
	t.write("UPDATE %s SET %s WHERE lock_key='%s' AND entry_id='%s'", t.store.table, b.String(), t.q.key, r.id)
}

// forget takes the caller's entry out and remembers that it has gone.
func (t *step) forget(evictedBy string) {
	t.holders = slices.DeleteFunc(t.holders, func(r row) bool { return r.id == t.q.mine.id })
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == t.q.mine.id })
	t.saveGone(&row{evicted: evictedBy})
	if t.name.counter%tidyEvery == 0 {
		t.write("DELETE FROM %s WHERE lock_key='%s' AND state='G' AND place<%d", t.store.table, t.q.key, t.v.now-micros(remember))
	}
}

func (t *step) saveGone(r *row) {
	r.state, r.claim.Weight, r.goneAt = gone, 1, t.v.now
	t.save(r)
}

func claims(rows []row) []locks.Claim {
	all := make([]locks.Claim, len(rows))
	for i := range rows {
		all[i] = rows[i].claim
	}
	return all
}

func (t *step) fits(r *row) bool { return locks.Admits(claims(t.holders), r.claim) }

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
	t.sleepers = append(t.sleepers, Sleeper{Table: t.store.table, Key: t.q.key, ID: r.id, Conn: r.ears})
}

// wake tells the first waiter that it is its turn, or that what is in its way is
// a hold that ends by itself: then it looks when that is over. One whose connection has
// gone gets little time to show that it lives, and the next is told to look.
// If that is the caller, the result is when; 0 is not at all.
func (t *step) wake() time.Duration {
	if len(t.queue) == 0 || t.quietUntil() > t.v.now {
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
func (t *step) reaches(w *row) bool { return w.ears != 0 && t.knows(w) }

func (t *step) knows(r *row) bool {
	login := loginOf(r.info)
	return login == "" || login == t.v.account || t.store.dialect.Notify(r.id) != ""
}

// heard reports whether a waiter can be woken by those who are there before it.
func (t *step) heard(ahead int) bool {
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

func (t *step) join() answer {
	q, own := t.q, t.v.own
	hasGone := own != nil && (own.state == gone || own.left(t.v.now))
	if hasGone && own.evicted != "" {
		return evictedBy(own.evicted)
	}
	if hasGone && !q.noWait && len(q.within) == 0 {
		return verdict(lease.Gone)
	}
	t.enter()
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
	may := func() bool { return !hasGone && ahead == 0 && t.quietUntil() <= t.v.now && t.fits(&mine) }
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
		t.lasting = t.renamed || len(replaced) > 0 // who is forgotten comes again, with its ticket
	}
	a.replaced = replaced
	return a
}

// ahead puts the caller into the queue in mind, and counts who stands before
// it.
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
	t.keepPace()
	mine.state, mine.ears, mine.since, mine.fence = holding, 0, t.v.now, t.name.counter
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

// keepPace learns how fast grants follow each other. Only those count that
// somebody had to wait for, and was there for: who came late would teach others
// to come late. And one slow command says little.
func (t *step) keepPace() {
	if t.v.own == nil && len(t.v.front) == 0 {
		return
	}
	first := micros(firstPace)
	if t.name.pace == 0 {
		t.name.pace = first
	}
	if last := t.v.now - t.name.granted; last > 0 && t.name.granted > 0 && t.v.own != nil && (t.v.own.ears != 0 || !t.q.listens) {
		t.name.pace += (min(last, 2*t.name.pace+first) - t.name.pace) / 4
	}
	t.name.granted, t.renamed = t.v.now, true
}

func (t *step) queueUp(mine row, ahead int) answer {
	t.raise(mine.claim.Ticket)
	mine.state = waiting
	mine.ends = t.v.now + micros(mine.ttl)
	mine.ears = 0
	if t.heard(ahead) {
		mine.ears = t.v.conn
	}
	t.save(&mine)
	if mine.ears != 0 {
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
		if t.quietUntil() > t.v.now {
			sooner(t.quietUntil())
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
	if mine.ears == 0 {
		look = min(look, t.pollPause(ahead, mine.ttl))
	}
	a := granted(lease.Queued, mine)
	a.Place, a.Recheck, a.Quarantine = ahead+1, look, t.quarantineLeft(&mine)
	return a
}

// The pauses of a waiter that nobody can wake.
const (
	shortestPoll = 50 * time.Millisecond
	frontPoll    = 200 * time.Millisecond // of the first, where nobody listens
	stepPoll     = 300 * time.Millisecond // at most for every place further back, if nothing moves
	firstPace    = 8 * time.Millisecond   // of a name that has none yet
)

// pollPause is how long such a waiter sleeps; see Store.pollPause.
func (t *step) pollPause(ahead int, ttl time.Duration) time.Duration {
	if !t.q.listens || ahead < t.store.target.waiters {
		return min(ttl/3, time.Duration(ahead+1)*frontPoll)
	}
	return t.store.pollPause(ahead, ttl, span(t.name.pace), span(t.v.now-t.lastGrant()))
}

// pollPause is how long a waiter sleeps that has so many ahead of it, more than
// listen. It must be back before they have all had their turn, at the pace that
// the name has had lately (0: it has none yet). When nothing has moved for some
// time (still), it may sleep for half of that in addition: what it then loses is
// little of what it has waited already.
func (s *Store) pollPause(ahead int, ttl, pace, still time.Duration) time.Duration {
	if pace == 0 {
		pace = firstPace
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

// replaceableAhead counts the waiters that a newcomer puts out of its way.
func (t *step) replaceableAhead(mine *row) int {
	n := 0
	for i := range t.v.replaceable {
		if w := &t.v.replaceable[i]; w.ends > t.v.now && w.before(mine) {
			n++
		}
	}
	return n
}

// replace evicts those who stand, or hold, where a newcomer wants to be that
// replaces them.
func (t *step) replace(mine *row) []row {
	var all []row
	var rivals []locks.Rival
	add := func(r row, state locks.State) {
		all = append(all, r)
		rivals = append(rivals, locks.Rival{Claim: r.claim, State: state, Replace: r.replaces, Leaving: r.evicted != ""})
	}
	for _, w := range t.v.replaceable {
		if w.ends > t.v.now && w.id != mine.id {
			add(w, locks.Waiting)
		}
	}
	for _, h := range t.holders {
		add(h, locks.Holding)
	}
	var replaced []row
	for _, i := range locks.Replaced(rivals, mine.claim, mine.replaces) {
		r := all[i]
		replaced = append(replaced, r)
		switch {
		case r.state == waiting:
			t.evictWaiter(&r, t.q.who)
		case r.left(t.v.now):
			t.drop(r.id)
			t.holders = slices.DeleteFunc(t.holders, func(h row) bool { return h.id == r.id })
		default:
			t.mark(&r, t.q.who)
		}
	}
	return replaced
}

// evictWaiter ends a waiter's place. Its golock learns of it when it looks.
func (t *step) evictWaiter(w *row, by string) {
	t.queue = slices.DeleteFunc(t.queue, func(r row) bool { return r.id == w.id })
	t.write("UPDATE %s SET state='G',place=%d,evicted='%s' WHERE lock_key='%s' AND entry_id='%s'",
		t.store.table, t.v.now, escape(by, maxEvicted), t.q.key, w.id)
	t.v.waiters = max(t.v.waiters-1, 0)
	t.v.before = max(t.v.before-1, 0)
	t.changed = true
	t.call(w)
}

// mark tells a holder to go. Its golock learns of it with its next renewal. Its
// hold is void.
func (t *step) mark(h *row, by string) {
	h.evicted, h.hold = by, 0
	t.write("UPDATE %s SET evicted='%s',hold=0 WHERE lock_key='%s' AND entry_id='%s'", t.store.table, escape(by, maxEvicted), t.q.key, h.id)
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
		t.enter()
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
	t.raise(mine.fence)
	t.save(&mine)
	t.holders = append(t.holders, mine)
	if t.changed {
		t.wake()
	}
	return granted(lease.Held, mine), true
}

// raise makes that numbers to come are higher than one that was given before
// the store forgot it.
func (t *step) raise(number int64) {
	if number > t.name.counter {
		t.name.counter, t.renamed = number, true
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
		sleeper := own != nil && own.state == waiting && own.ears != 0
		t.forget("")
		if sleeper && t.store.dialect.Notify("") == "" { // its statement sleeps on, although nobody waits for the answer
			t.sleepers = append(t.sleepers, Sleeper{Table: t.store.table, Key: t.q.key, ID: own.id, Conn: own.ears})
		}
	}
	before := len(t.sleepers)
	t.wake()
	if was && own.state == holding && len(t.sleepers) > before && t.fits(&t.queue[0]) {
		t.lasting = false // the grant that follows is, and with it all that came before
	}
	return released(was)
}

func (t *step) evict() answer {
	own := t.v.own
	switch {
	case own == nil || own.state == gone:
		return verdict(lease.Lost)
	case own.left(t.v.now):
		t.forget(t.q.who)
	case own.state == holding:
		if own.evicted == "" {
			t.mark(own, t.q.who)
		}
		return verdict(lease.Marked)
	default:
		t.evictWaiter(own, t.q.who)
	}
	t.wake()
	return verdict(lease.Marked)
}

// finish is the text that writes the step and ends its transaction. What only
// locked, and will not matter to anybody, need not reach the disk.
func (t *step) finish() string {
	if t.renamed {
		t.write("UPDATE %s SET epoch='%s',server='%s',quiet=%d,ticket=%d,pace=%d,granted=%d WHERE lock_key='%s' AND entry_id=''",
			t.store.table, t.name.epoch, t.name.server, t.name.quiet, t.name.counter, t.name.pace, t.name.granted, t.q.key)
	}
	if len(t.writes) == 0 {
		return "ROLLBACK"
	}
	return strings.Join(t.writes, ";") + ";" + t.store.dialect.Commit(t.lasting)
}
