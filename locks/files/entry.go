package files

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// beats is how many signs of life an entry gives in its TTL while it waits. A
// holder is renewed by whoever holds it.
const beats = 3

// entry is one that this process has made, or that it found (Attach).
type entry struct {
	store    *Store
	queue    *queue
	request  locks.Request
	attached bool
	queued   bool        // it was let into the queue; of the one that joins and waits
	given    atomic.Bool // it is being given up: nothing is to be taken any more

	events   chan locks.Event
	watching sync.Once
	closed   chan struct{} // closed by Close
	closing  sync.Once
	using    chan struct{} // has room for the one that uses the directory for a lease

	mu       sync.Mutex // guards what follows; held while the directory is used
	attempt  int
	token    token // the zero one: there is none
	record   record
	pulse    pulse
	term     locks.Term // of the last good sign of life
	watch    *watch
	choosing map[string]token // who was choosing when our ticket could be seen
	records  map[string]record
	listing  string        // the line as it was
	changed  locks.Instant // since when it is like that
	settled  bool          // it is known whom it puts out of its way
	released bool
	replaces []token // whom it put out of its way by that, as long as they have not been told
}

func (s *Store) entryOf(r locks.Request) *entry {
	return &entry{store: s, request: r, events: make(chan locks.Event, 1), closed: make(chan struct{}), using: make(chan struct{}, 1)}
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r)
	e.record = s.newRecord(r)
	return e
}

// errGone says that an entry was given up, or taken for dead.
var errGone = errors.New("the place in the line is gone")

// errTakenOut says that somebody has removed an entry that nobody can have taken for
// dead.
var errTakenOut = errors.New("this request was taken out of the queue")

// enter puts the entry at the end of the line.
func (e *entry) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.enterLocked()
}

func (e *entry) enterLocked() error {
	q, at := e.queue, e.store.at
	t := token{kind: isNew, id: entryID(e.request.Ref, e.attempt)}
	e.attempt++
	at("create")
	if err := q.create(t); err != nil {
		return q.vanished(err)
	}
	e.token, e.records, e.choosing = t, map[string]record{}, map[string]token{}
	at("created")
	if err := mkdirLike(q.dataPath(t.id), q.path); err != nil {
		return err
	}
	at("record")
	e.pulse, e.record.Slots, e.record.Fence = pulse{count: 1, asked: e.store.clock()}, nil, 0
	if err := q.writeRecord(t.id, e.pulse, &e.record); err != nil {
		return err
	}
	e.term = locks.Term{Asked: e.pulse.asked, TTL: e.record.TTL}
	at("choose")
	if err := e.turn(t.as(chooses)); err != nil {
		return err
	}
	at("choosing")
	line, err := q.list()
	if err != nil {
		return err
	}
	t = t.as(waits)
	for _, other := range line {
		if other.kind == waits || other.kind == holds {
			t.ticket = max(t.ticket, other.ticket)
		}
	}
	t.ticket++
	at("queue")
	if err := e.turn(t); err != nil {
		return err
	}
	at("queued")
	// Who chose at the same time may have a ticket that goes before this one.
	// Who begins to choose from now on sees it.
	if line, err = q.list(); err != nil {
		return err
	}
	for _, other := range line {
		if other.kind == chooses {
			e.choosing[other.id] = other
		}
	}
	e.changed = e.store.clock()
	return nil
}

// turn makes the entry's own token one of another kind.
func (e *entry) turn(to token) error {
	if e.given.Load() {
		return errGone
	}
	err := e.queue.turn(e.token, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errGone
	case err != nil:
		return err
	}
	e.token = to
	return nil
}

// vanished makes a missing directory an error that says so.
func (q *queue) vanished(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := q.store.checkDir(); err != nil {
		return err
	}
	return &Error{Path: q.path, Err: errors.New("was removed while it was in use")}
}

// view is what a look at the line shows.
type view struct {
	granted  bool
	place    int  // in the line; 1 is the next
	waiters  int  // that were there before it
	passing  bool // those in the way do something that takes a moment only
	choosing bool // one that may go before still chooses its ticket: nothing else is known
	holders  []seat
	rivals   []seat        // those ahead that were there before it, and the holders if they are known
	picked   []seat        // and whom of them it puts out of its way
	quiet    time.Duration // since when the line is as it is
}

// look takes the slot if it is this entry's turn. An entry that was taken for
// dead is put at the end of the line again.
func (e *entry) look() (view, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, err := e.lookLocked()
	if !errors.Is(err, errGone) || e.given.Load() {
		return v, err
	}
	if _, err := e.queue.list(); err != nil {
		return v, e.queue.vanished(err)
	}
	if e.store.clock() < e.term.End() { // nobody can have taken it for dead
		return v, errTakenOut
	}
	if err := e.discard(); err != nil {
		return v, err
	}
	if err := e.enterLocked(); err != nil {
		e.term = locks.Term{} // what came into being of it counts for nothing: the next look begins anew
		if !errors.Is(err, errGone) {
			return v, err
		}
	}
	return view{passing: true, place: 1}, nil
}

func (e *entry) lookLocked() (view, error) {
	q, at, clock := e.queue, e.store.at, e.store.clock
	if e.token.kind == holds { // it could not step back
		if err := e.turn(e.token.as(waits)); err != nil {
			return view{}, err
		}
	}
	if e.token.kind != waits {
		return view{}, errGone
	}
	if by, ok := q.evictedBy(e.token.id); ok {
		return view{}, &locks.EvictedError{By: by}
	}
	if clock() >= e.term.Asked.Add(e.term.TTL/beats) {
		if err := e.beat(); err != nil {
			return view{}, err
		}
	}
	at("look")
	line, err := q.list()
	if err != nil {
		return view{}, q.vanished(err)
	}
	if !slices.Contains(line, e.token) {
		return view{}, errGone
	}
	if busy, err := e.othersChoose(line); err != nil || busy {
		return view{passing: true, choosing: true, place: 1}, err
	}
	// Only now everybody who may go before has a ticket to be seen.
	at("look again")
	if line, err = q.list(); err != nil {
		return view{}, q.vanished(err)
	}
	v, ahead, err := e.survey(line)
	if err != nil {
		return v, err
	}
	v.picked = e.pick(v.rivals)
	e.replace()
	if len(ahead) > 0 {
		v.passing = !slices.ContainsFunc(ahead, func(s seat) bool { return !s.record.NoWait && s.evicted == "" })
		return v, nil
	}
	if !admits(v.holders, e.claim()) {
		return v, nil
	}
	return e.take(v)
}

func (e *entry) claim() locks.Claim { return e.record.claim(e.token.ticket) }

func admits(holders []seat, c locks.Claim) bool {
	claims := make([]locks.Claim, len(holders))
	for i := range holders {
		claims[i] = holders[i].claim()
	}
	return locks.Admits(claims, c)
}

// othersChoose reports whether somebody still chooses who did so when this
// entry's ticket became visible.
func (e *entry) othersChoose(line []token) (bool, error) {
	for id, t := range e.choosing {
		if !slices.Contains(line, t) {
			delete(e.choosing, id)
			continue
		}
		s, err := e.watch.look(t)
		switch {
		case err != nil:
			return false, err
		case s.dead:
			if removed, err := e.queue.remove(t); err != nil && !removed {
				return false, err
			}
			delete(e.choosing, id)
		case s.absent:
			delete(e.choosing, id)
		}
	}
	return len(e.choosing) > 0, nil
}

// nearest is how many of those before it each waiter keeps an eye on. The one in
// front also watches the holders.
const nearest = 16

// compare orders the tokens of waiters whose records are known.
func (e *entry) compare(a, b token) int {
	switch ra, rb := e.records[a.id], e.records[b.id]; {
	case ra.claim(a.ticket).Before(rb.claim(b.ticket)):
		return -1
	case rb.claim(b.ticket).Before(ra.claim(a.ticket)):
		return 1
	}
	return strings.Compare(a.id, b.id)
}

// survey finds out who holds and who waits before this entry. The dead are
// removed.
func (e *entry) survey(line []token) (v view, ahead []seat, err error) {
	var before, behind, holding []token
	names := make([]string, 0, len(line))
	for _, t := range line {
		names = append(names, t.String())
		switch {
		case t.id == e.token.id:
		case t.kind == holds:
			holding = append(holding, t)
		case t.kind == waits:
			rec, err := e.recordOf(t)
			if err != nil {
				return v, nil, err
			}
			if older(t, e.token) && !rec.NoWait {
				v.waiters++
			}
			if e.behind(t, &rec) {
				before = append(before, t)
			} else if older(t, e.token) && !rec.NoWait {
				behind = append(behind, t)
			}
		}
	}
	now := e.store.clock()
	slices.Sort(names)
	if listing := strings.Join(names, " "); listing != e.listing {
		e.listing, e.changed = listing, now
	}
	v.quiet = now.Sub(e.changed)
	slices.SortFunc(before, e.compare)
	for i, t := range before {
		if i >= nearest && i < len(before)-nearest {
			ahead = append(ahead, seat{token: t, queue: e.queue, record: e.records[t.id]})
			continue
		}
		s, err := e.judge(t)
		if err != nil {
			return v, nil, err
		}
		if s.absent {
			if older(t, e.token) && !e.records[t.id].NoWait {
				v.waiters--
			}
			continue
		}
		ahead = append(ahead, s)
		if older(t, e.token) {
			v.rivals = append(v.rivals, s)
		}
	}
	if e.request.MaxQueue != nil && !e.settled { // with them too it counts, and perhaps nobody else looks after them
		for _, t := range behind {
			s, err := e.judge(t)
			if err != nil {
				return v, nil, err
			}
			if s.absent {
				v.waiters--
			}
		}
	}
	v.place = len(ahead) + 1
	// Who does not wait, or may replace somebody, wants to know the holders.
	if v.place <= 2 || e.request.NoWait || e.request.MaxQueue != nil || e.request.Replace != locks.ReplaceNone || len(e.request.Within) > 0 {
		for _, t := range holding {
			s, err := e.judge(t)
			if err != nil {
				return v, nil, err
			}
			if s.absent {
				continue
			}
			v.holders = append(v.holders, s)
			v.rivals = append(v.rivals, s)
		}
	}
	return v, ahead, nil
}

// face is what an entry brought with it, which does not change.
func (e *entry) recordOf(t token) (record, error) {
	if rec, ok := e.records[t.id]; ok {
		return rec, nil
	}
	_, rec, err := e.queue.readRecord(t.id)
	switch {
	case err == nil:
		e.records[t.id] = rec
	case errors.Is(err, fs.ErrNotExist) || err == errDamaged:
		err = nil
	}
	return rec, err
}

// behind reports whether this entry stands behind a waiter.
func (e *entry) behind(t token, rec *record) bool {
	mine, its := e.claim(), rec.claim(t.ticket)
	return its.Before(mine) || (!mine.Before(its) && t.id < e.token.id)
}

// older reports whether a was in the line before b, whatever their priorities.
func older(a, b token) bool {
	return a.ticket < b.ticket || (a.ticket == b.ticket && a.id < b.id)
}

// judge looks at an entry and removes it if it is dead.
func (e *entry) judge(t token) (seat, error) {
	s, err := e.watch.look(t)
	if err == nil && s.dead {
		s.absent = true
		var removed bool
		if removed, err = e.queue.remove(t); removed {
			err = nil // what is left of it counts for nothing
		}
	}
	return s, err
}

// take makes the entry a holder if the rule still holds when everybody can see
// that it is one.
func (e *entry) take(v view) (view, error) {
	q, at, clock := e.queue, e.store.at, e.store.clock
	slots := locks.FreeSlots(func(slot int) bool { return uses(v.holders, slot) }, e.record.Weight)
	at("fence")
	fence, err := q.nextFence()
	if err != nil {
		return v, err
	}
	at("write slots")
	e.record.Slots, e.record.Fence, e.record.Granted = slots, fence, clock()
	if err := e.sign(func(p pulse) error { return q.writeRecord(e.token.id, p, &e.record) }); err != nil {
		return v, err
	}
	at("hold")
	waiting := e.token
	if err := e.turn(waiting.as(holds)); err != nil {
		return v, err
	}
	at("held")
	fits, err := e.fits()
	if err == nil && fits {
		err = e.renumber()
	}
	// Told to go since it last looked: what it fits into may be free only because
	// of the one who told it.
	by, evicted := q.evictedBy(waiting.id)
	if err == nil && fits && !evicted && clock() < e.term.End() && !e.given.Load() {
		at("granted")
		v.granted = true
		return v, nil
	}
	at("step back")
	if back := e.turn(waiting); back != nil {
		return v, back
	}
	if evicted {
		return v, &locks.EvictedError{By: by}
	}
	v.passing = true
	return v, err
}

// renumber gives a holder a higher fence if others were given since it took its
// own: it may have been held up between the two, and they are over.
func (e *entry) renumber() error {
	last, _, err := lastFence(e.queue.path + "/" + fencesDir)
	if err != nil || last == e.record.Fence {
		return err
	}
	e.store.at("renumber")
	if e.record.Fence, err = e.queue.nextFence(); err != nil {
		return err
	}
	return e.sign(func(p pulse) error { return e.queue.writeRecord(e.token.id, p, &e.record) })
}

// fits looks, as a holder, at all other holders, and at who has come to wait
// before it since it looked last: it may have been held up for any time.
func (e *entry) fits() (bool, error) {
	line, err := e.queue.list()
	if err != nil {
		return false, e.queue.vanished(err)
	}
	var others []seat
	mine := false
	for _, t := range line {
		mine = mine || t == e.token
		if t.kind == waits && t.id != e.token.id {
			// Who does not wait sees a holder here, and goes.
			if rec, err := e.recordOf(t); err != nil || (!rec.NoWait && e.behind(t, &rec)) {
				return false, err
			}
		}
		if t.kind != holds || t.id == e.token.id {
			continue
		}
		s, err := e.judge(t)
		switch {
		case err != nil:
			return false, err
		case s.absent:
			continue
		}
		for _, slot := range e.record.Slots {
			if slices.Contains(s.record.Slots, slot) {
				return false, nil
			}
		}
		others = append(others, s)
	}
	if !mine {
		return false, errGone
	}
	return admits(others, e.claim()), nil
}

func uses(holders []seat, slot int) bool {
	return slices.ContainsFunc(holders, func(s seat) bool { return slices.Contains(s.record.Slots, slot) })
}

// sign gives a sign of life. It counts only if it was there before the last one
// had run out: until then nobody can have taken the entry for dead, and from
// then on everybody sees the new one.
func (e *entry) sign(write func(pulse) error) error {
	asked := e.store.clock()
	end := e.term.End()
	if asked >= end {
		return errGone
	}
	p := pulse{count: e.pulse.count + 1, asked: asked}
	if err := write(p); errors.Is(err, fs.ErrNotExist) {
		return errGone
	} else if err != nil {
		return err
	}
	e.pulse = p
	e.store.at("beaten")
	if e.store.clock() >= end {
		return errGone
	}
	e.term = locks.Term{Asked: asked, TTL: e.record.TTL}
	return nil
}

// beat gives a sign of life and looks whether the entry is still there.
func (e *entry) beat() error {
	e.store.at("beat")
	err := e.sign(func(p pulse) error { return e.queue.writePulse(e.token.id, p) })
	if err != nil {
		return err
	}
	if here, err := e.queue.here(e.token); err != nil {
		return err
	} else if !here {
		return errGone
	}
	return nil
}

// leave gives the entry up, whatever it is by now, and notes for others what
// this one has seen.
func (e *entry) leave() {
	e.given.Store(true)
	e.withdraw()
}

func (e *entry) withdraw() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watch == nil { // it has not come so far
		return
	}
	_ = e.discard()
	e.watch.note()
}

// discard removes the entry.
func (e *entry) discard() error {
	if e.token.id == "" {
		return nil
	}
	removed, err := e.queue.remove(e.token)
	if err == nil || removed {
		e.token = token{}
		return nil
	}
	return err
}

// pick is whom the request puts out of its way: of those that were there before
// it.
func (e *entry) pick(others []seat) (picked []seat) {
	if e.request.Replace == locks.ReplaceNone || e.request.NoWait {
		return nil
	}
	rivals := make([]locks.Rival, len(others))
	for i, s := range others {
		rivals[i] = locks.Rival{Claim: s.claim(), State: locks.Waiting, Leaving: s.evicted != ""}
		if older(s.token, e.token) {
			rivals[i].Replace = s.record.Replace
			if s.ticket == e.token.ticket { // its ID goes first, of which a claim knows nothing
				rivals[i].Claim.Ticket--
			}
		}
		if s.kind == holds {
			rivals[i].State = locks.Holding
		}
	}
	for _, i := range locks.Replaced(rivals, e.claim(), e.request.Replace) {
		picked = append(picked, others[i])
	}
	return picked
}

// replace tells those to go whom the entry replaces. If that fails, the next
// look tries again.
func (e *entry) replace() {
	e.replaces = slices.DeleteFunc(e.replaces, func(t token) bool {
		e.store.at("replace")
		err := e.queue.evict(t, locks.ReplacedBy(e.request))
		return err == nil || errors.Is(err, locks.ErrLost)
	})
}

// settle has the entry stay in the line: it replaces those who are in its way
// now, and nobody later. The last waiter goes first and the holders go last, so
// that nobody who is to go is let in because another one has gone.
func (e *entry) settle(picked []seat) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settled = true
	for _, s := range slices.Backward(picked) {
		if s.kind == waits {
			e.replaces = append(e.replaces, s.token)
		}
	}
	for _, s := range picked {
		if s.kind == holds {
			e.replaces = append(e.replaces, s.token)
		}
	}
	e.replace()
}

// evict marks an entry, once.
func (q *queue) evict(t token, by string) error {
	path := q.dataPath(t.id) + "/" + evictedFile
	if here, err := exists(path); err != nil || here {
		return err
	}
	// Several may do so at once, each with a file of its own.
	own := path + "." + strconv.FormatUint(rand.Uint64(), 36)
	err := writeFile(own, []byte(by+"\n"))
	if err == nil {
		if err = rename(own, path); err != nil {
			err = &Error{Op: "rename", Path: own, Err: err}
		}
	}
	if errors.Is(err, unix.ENOENT) {
		if here, err := exists(path); err != nil || here { // two said so at once
			return err
		}
		return locks.ErrLost
	}
	return err
}
