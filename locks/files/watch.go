package files

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"golock/locks"
)

// watch remembers when it first saw each entry's pulse.
type watch struct {
	queue *queue
	ttl   time.Duration // for entries that do not tell theirs
	mu    sync.Mutex
	seen  map[string]sight
}

type sight struct {
	beat  string
	since locks.Instant // after it was read
	first bool          // nothing else was ever seen
}

func (q *queue) watch(ttl time.Duration) *watch {
	return &watch{queue: q, ttl: ttl, seen: map[string]sight{}}
}

// seat is an entry as somebody else sees it.
type seat struct {
	token
	queue     *queue
	record    record
	dead      bool
	absent    bool // it has gone since it was listed
	evicted   string
	unchanged time.Duration // how long its pulse has been the same
	left      time.Duration // how long it counts without another one
	rest      time.Duration // how long it is held whatever becomes of it
}

func (s *seat) claim() locks.Claim { return s.record.claim(s.ticket) }

// look reads an entry's record and judges it.
func (w *watch) look(t token) (seat, error) {
	q, clock := w.queue, w.queue.store.clock
	before := clock()
	beat, rec, err := q.readRecord(t.id)
	s := seat{token: t, queue: q, record: rec}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// It is removed before its token is renamed for the last time, and
		// made after an n.
		if here, err := q.here(t); err != nil || !here {
			s.absent = true
			return s, err
		}
	case err != nil && err != errDamaged:
		return s, err
	}
	if by, ok := q.evictedBy(t.id); ok {
		s.evicted = by
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was, known := w.seen[t.id]
	if !known || was.beat != beat {
		now := sight{beat: beat, since: clock(), first: !known}
		if since, ok := q.seenBefore(t.id, beat, before); ok && !known {
			now.since = since
		}
		w.seen[t.id], was = now, now
	}
	s.unchanged = max(before.Sub(was.since), 0)
	// What has process and slot is a holder whose command may outlive its
	// golock: only time tells. Nothing depends on the process of others.
	if t.kind != holds && err == nil && rec.Owner.gone() {
		s.dead = true
		return s, nil
	}
	s.left = max(s.lasts(w.ttl)-s.unchanged, 0)
	s.rest = s.heldFor(before)
	s.dead = s.left == 0 && s.rest == 0
	return s, nil
}

// lasts is how long an entry without a sign of life counts, unless it is held.
func (s *seat) lasts(ttl time.Duration) time.Duration {
	switch {
	case s.record.TTL == 0:
		return ttl
	case s.record.Left:
		return 0
	}
	return s.record.TTL
}

// heldFor is how much is left of an entry's hold: on the clock it was taken on
// that is known, on others it is counted from when the entry was last seen to
// change.
func (s *seat) heldFor(now locks.Instant) time.Duration {
	r := &s.record
	switch {
	case s.kind != holds || r.Hold <= 0 || s.evicted != "":
		return 0
	case r.Clock != "" && r.Clock == s.queue.store.clockName():
		return max(r.Granted.Add(r.Hold).Sub(now), 0)
	case r.Left:
		return max(r.Rest-s.unchanged, 0)
	}
	return max(r.Hold-s.unchanged, 0)
}

// alive reports whether the entry has given a sign of life since it was first
// seen.
func (w *watch) alive(t token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.seen[t.id]
	return ok && !s.first
}

// A run that does not wait sees each entry once. So that a dead one does not
// live for ever among such runs, they note what they have seen, for the next one
// on the same clock.

func (q *queue) seenPath(id string) (string, bool) {
	clock := q.store.clockName()
	return q.dataPath(id) + "/" + seenPrefix + clock, clock != ""
}

// seenBefore tells since when this pulse has been known on this clock.
func (q *queue) seenBefore(id, beat string, now locks.Instant) (locks.Instant, bool) {
	path, ok := q.seenPath(id)
	if !ok {
		return 0, false
	}
	text, err := readFile(path)
	if err != nil || len(text) != len(beat)+21 || string(text[:len(beat)]) != beat {
		return 0, false
	}
	since, err := strconv.ParseInt(string(text[len(beat):len(text)-1]), 10, 64)
	return locks.Instant(since), err == nil && locks.Instant(since) <= now
}

// note writes down what was seen. If that fails, it is seen later.
func (w *watch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.seen {
		w.queue.noteSeen(id, s.beat, s.since)
	}
}

func (q *queue) noteSeen(id, beat string, since locks.Instant) {
	path, ok := q.seenPath(id)
	if !ok {
		return
	}
	if before, ok := q.seenBefore(id, beat, since); ok && before <= since {
		return
	}
	_ = replaceFile(path, fmt.Appendf([]byte(beat), "%020d\n", since))
}
