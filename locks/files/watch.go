package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/queue"
)

// watch remembers when it first saw each entry's sign of life.
type watch struct {
	*directory
	looks bool // and makes no versions
	mu    sync.Mutex
	seen  map[string]observation // by record
	notes map[string]note        // of those who looked before on this clock; nil: not read yet
}

type observation struct {
	text  string
	since locks.Instant // after it was read
	first bool          // nothing else was ever seen
}

func (d *directory) watch() *watch { return &watch{directory: d, seen: map[string]observation{}} }

// observedEntry is an entry as somebody else sees it.
type observedEntry struct {
	*member
	record    record
	phase     byte          // of its last sign of life; 0: there is none
	unchanged time.Duration // how long that has been the same
	left      time.Duration // how long it counts without another one
	rest      time.Duration // how long it is held whatever becomes of it
	dead      bool
}

// judge reads an entry's sign of life. One that cannot be read counts as one that has
// not changed.
func (w *watch) judge(m *member) (*observedEntry, error) {
	w.store.at("judge")
	clock := w.store.clock
	before := clock()
	text, rec, err := w.readRecord(m.record())
	if err != nil {
		return nil, err
	}
	s := &observedEntry{member: m, record: rec}
	p, ok := parseHeartbeat(text)
	if ok {
		s.phase = p.phase
	}
	s.unchanged = w.unchanged(m, text, before, clock)
	leaves, noRoom := p.leaves()
	switch {
	case noRoom:
		s.phase += toSmall
	case leaves && w.looks && !rec.Process.gone(w.store.self()):
		s.phase, leaves = accepted, false
	}
	if m.state != queue.Ended && !leaves {
		s.left = max(m.ttl-s.unchanged, 0)
	}
	here := rec.Clock != "" && rec.Clock == w.store.clockName()
	if here { // what the owner's clock says is true
		s.left = min(s.left, max(p.asked.Add(m.ttl).Sub(before), 0))
	}
	s.rest = s.heldFor(before, here)
	s.dead = s.left == 0 && s.rest == 0
	// What runs a command counts after the end of its golock too: only time tells. One
	// that has ended may have begun to, just before.
	if s.phase == joined && m.state != queue.Ended && rec.Process.gone(w.store.self()) {
		again, _, err := w.readRecord(m.record())
		s.dead = s.dead || (err == nil && again == text)
	}
	return s, nil
}

// unchanged tells for how long an entry has been as it is.
func (w *watch) unchanged(m *member, text string, now locks.Instant, clock locks.Clock) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := m.record()
	was, known := w.seen[name]
	mark := text
	if m.state == queue.Ended { // that is counted anew
		mark = "E" + text
	}
	if !known || (text != "" && was.text != mark) {
		was = observation{text: mark, since: clock(), first: !known}
		if n, ok := w.noted()[name]; ok && !known && n.Heartbeat == mark && n.Since <= now {
			was.since = n.Since
		}
		w.seen[name] = was
	}
	return max(now.Sub(was.since), 0)
}

// heldFor is how much is left of an entry's hold: on the clock it was taken on
// that is known, on others it is counted from when the entry was last seen to
// change.
func (s *observedEntry) heldFor(now locks.Instant, here bool) time.Duration {
	m := s.member
	switch {
	case (m.state != queue.Holding && m.state != queue.Ended) || m.hold <= 0 || m.evicted != "" || s.phase == withdrew:
		return 0
	case here && m.granted != 0:
		return max(m.granted.Add(m.hold).Sub(now), 0)
	case m.state == queue.Ended:
		return max(m.rest-s.unchanged, 0)
	}
	return max(m.hold-s.unchanged, 0)
}

// alive reports whether an entry has given a sign of life since it was first
// seen.
func (w *watch) alive(record string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.seen[record]
	return ok && !s.first
}

// A run that does not wait sees each entry once. So that a dead one does not
// live for ever among such runs, they note what they have seen, for the next one
// on the same clock.

type note struct {
	Heartbeat string        `json:"beat"`
	Since     locks.Instant `json:"since"`
}

func (w *watch) notesPath() string { return w.path + "/" + seenPrefix + w.store.clockName() }

// noted are the notes of those who looked before.
func (w *watch) noted() map[string]note {
	if w.notes == nil {
		w.notes = map[string]note{}
		if text, err := readFile(w.notesPath()); err == nil && w.store.clockName() != "" {
			_ = json.Unmarshal(text, &w.notes) // what is damaged says nothing
		}
	}
	return w.notes
}

// writeNotes writes down what was seen of the entries that are still there. If that
// fails, it is seen later.
func (w *watch) writeNotes(s *state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store.clockName() == "" || s == nil {
		return
	}
	old, all, isNew := w.noted(), map[string]note{}, false
	for _, m := range s.entries {
		name := m.record()
		if n, ok := old[name]; ok {
			all[name] = n
		}
		was, noted := all[name]
		if mine, ok := w.seen[name]; ok && (!noted || was.Heartbeat != mine.text || was.Since > mine.since) {
			all[name], isNew = note{mine.text, mine.since}, true
		}
	}
	text, err := json.Marshal(all)
	if err != nil || !isNew {
		return
	}
	// An old version's temporary name: what is left behind is pruned.
	temp := fmt.Sprintf("%s/%s1.%x", w.path, tempPrefix, rand.Uint64())
	if err := makeFile(temp, w.path, text); err == nil {
		err = rename(temp, w.notesPath())
		if err != nil && !errors.Is(err, unix.ENOENT) {
			_ = unix.Unlink(temp)
		}
	}
}
