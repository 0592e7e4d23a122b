package files

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

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
	if err := e.renameToken(t.as(chooses)); err != nil {
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
	if err := e.renameToken(t); err != nil {
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

// renameToken makes the entry's own token one of another kind.
func (e *entry) renameToken(to token) error {
	if e.given.Load() {
		return errGone
	}
	err := e.queue.renameToken(e.token, to)
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
	return &locks.PathError{Path: q.path, Err: errors.New("was removed while it was in use")}
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
