package files

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// observation is a heartbeat, and since when this process, or one that has left notes, has seen it.
type observation struct {
	Heartbeat string        `json:"beat"`
	Since     locks.Instant `json:"since"`
	changes   int           // how many heartbeats of the entry this process has seen begin; 0 if it knows only the notes
}

// observations are the observations of the entries in a directory.
type observations struct {
	mu       sync.Mutex
	byRecord map[string]observation // the keys are names of record files; nil before the notes are read
	isNew    bool                   // some observations are not in the notes
}

// observedEntry is an entry as another process sees it.
type observedEntry struct {
	*member
	record    record
	phase     byte          // the phase of the last heartbeat, or phaseAccepted (see observe); 0 without a heartbeat
	unchanged time.Duration // how long the heartbeat has been the same
	isAlive   bool          // this process has seen the heartbeat change
	sameClock bool          // the instants of the entry are from this process's clock
	ttlLeft   time.Duration // the time until the entry is dead unless it writes another heartbeat
	holdLeft  time.Duration // the rest of the hold
	isDead    bool

	last     heartbeat     // the heartbeat that was read; zero if the entry has none
	lastRead locks.Instant // when last was read
}

// notForListing is the argument of observe for a step that may make a version.
const notForListing = false

// observe reads an entry's heartbeat. A heartbeat that cannot be read counts as unchanged. For a listing,
// an entry that is being given up counts as live until a version says that it has left (see record.go).
func (d *directory) observe(m *member, forListing bool) (*observedEntry, error) {
	d.store.hook("observe")
	now := d.store.clock()
	beat, rec, err := d.readRecord(m.record())
	if err != nil {
		return nil, err
	}
	// The owner relies on the TTL of its record. If somebody has changed the record or the line, only the
	// longer of the two TTLs is surely over when the owner has stopped.
	m.ttl = max(m.ttl, rec.TTL)
	if m.ttl == 0 {
		m.ttl = lease.DefaultTTL
	}
	last := d.noteObservation(m, beat, now)
	if beat.leaves() && forListing && !d.store.hasEnded(&rec) {
		beat.phase = phaseAccepted
	}
	o := &observedEntry{
		member: m, record: rec, phase: beat.phase, unchanged: max(now.Sub(last.Since), 0), isAlive: last.changes > 1,
		sameClock: d.store.isSameClock(&rec), last: beat, lastRead: now,
	}
	if m.State != queue.Ended && !beat.leaves() {
		o.ttlLeft = max(m.ttl-o.unchanged, 0)
	}
	if o.sameClock {
		o.ttlLeft = min(o.ttlLeft, max(beat.sent.Add(m.ttl).Sub(now), 0))
	}
	o.holdLeft = o.heldFor(now)
	o.isDead = o.ttlLeft == 0 && o.holdLeft == 0
	// A waiter is dead as soon as its process has ended. The command of an entry may outlive its golock:
	// then only the TTL tells. So observe reads the record again, because the process may have started a
	// command just before it ended.
	if beat.phase == phaseJoined && m.State != queue.Ended && d.store.hasEnded(&rec) {
		again, _, err := d.readRecord(m.record())
		o.isDead = o.isDead || (err == nil && again == beat)
	}
	return o, nil
}

// noteObservation notes an entry's heartbeat, and returns since when the heartbeat has been the same.
func (d *directory) noteObservation(m *member, beat heartbeat, now locks.Instant) observation {
	all := d.observed
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byRecord == nil {
		d.readNotes(now)
	}
	isMissing := beat == heartbeat{}
	text := ""
	if !isMissing {
		text = beat.String()
	}
	if m.State == queue.Ended { // the end counts as a change: the rest of the hold counts from it
		text = "E" + text
	}
	last, isKnown := all.byRecord[m.record()]
	if !isKnown || (!isMissing && last.Heartbeat != text) {
		last = observation{Heartbeat: text, Since: d.store.clock(), changes: last.changes + 1}
		all.byRecord[m.record()] = last
		all.isNew = true
	}
	return last
}

// heldFor returns the rest of an entry's hold. On the owner's clock it is exact. On another clock the hold
// counts from the last change of the entry that this process has seen.
func (o *observedEntry) heldFor(now locks.Instant) time.Duration {
	m := o.member
	switch {
	case !m.hasSlots() || m.hold <= 0 || m.Evicted != "" || o.phase == phaseWithdrawn:
		return 0
	case o.sameClock && m.granted != 0:
		return max(m.granted.Add(m.hold).Sub(now), 0)
	case m.State == queue.Ended:
		return max(m.rest-o.unchanged, 0)
	}
	return max(m.hold-o.unchanged, 0)
}

// A run that does not wait sees each heartbeat only once. So it leaves notes of what it has seen for
// the next run on the same clock. Without them a dead entry would never expire among such runs.

// readNotes reads what other processes on this clock have seen.
func (d *directory) readNotes(now locks.Instant) {
	all := d.observed
	text, err := readAt(unix.AT_FDCWD, d.path+"/"+seenPrefix+d.store.clockName(), maxState)
	if err == nil && d.store.clockName() != "" {
		_ = json.Unmarshal(text, &all.byRecord) // damaged notes say nothing
		maps.DeleteFunc(all.byRecord, func(_ string, o observation) bool { return o.Since > now })
	}
	if all.byRecord == nil {
		all.byRecord = map[string]observation{}
	}
}

// writeNotes writes what was seen of the entries of a state. It ignores errors: without the notes the
// next run begins to observe anew.
func (d *directory) writeNotes(s *state) {
	d.observed.mu.Lock()
	defer d.observed.mu.Unlock()
	if d.store.clockName() == "" || s == nil || !d.observed.isNew {
		return
	}
	records := s.records()
	maps.DeleteFunc(d.observed.byRecord, func(record string, _ observation) bool { return !records[record] })
	text, _ := json.Marshal(d.observed.byRecord)
	_ = d.replaceFile(seenPrefix+d.store.clockName(), text)
}
