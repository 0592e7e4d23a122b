package files

import (
	"cmp"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// observation is a heartbeat, and since when it has been seen unchanged.
type observation struct {
	Heartbeat string        `json:"beat"`
	Since     locks.Instant `json:"since"`
	changes   int           // the number of heartbeats that this process saw begin; 0 if it comes from the notes
}

// observations are what this process, and those of which it has notes, have seen in a
// directory.
type observations struct {
	mu       sync.Mutex
	byRecord map[string]observation // nil before the notes are read
	isNew    bool                   // there are some that are not in the notes
}

// observedEntry is an entry as another process sees it.
type observedEntry struct {
	*member
	record    record
	phase     byte          // the phase of its last heartbeat; 0 if it has none
	unchanged time.Duration // for which the heartbeat has been the same
	alive     bool          // this process has seen it change
	sameClock bool          // its instants are of this process' clock
	ttlLeft   time.Duration // until it is dead without another heartbeat
	holdLeft  time.Duration
	dead      bool

	last heartbeat     // the zero one: it has none
	at   locks.Instant // when it was read
}

// observe reads an entry's heartbeat. One that cannot be read counts as unchanged.
func (d *directory) observe(m *member, listing bool) (*observedEntry, error) {
	d.store.at("observe")
	now := d.store.clock()
	p, rec, err := d.readRecord(m.record())
	if err != nil {
		return nil, err
	}
	// The owner believes in the TTL of its record. Where somebody has changed the record or the line,
	// only the longer one is sure to be over when the owner has stopped.
	m.ttl = cmp.Or(max(m.ttl, rec.TTL), lease.DefaultTTL)
	last := d.compare(m, p, now)
	if p.leaves() && listing && !d.store.gone(&rec) {
		p.phase = phaseAccepted
	}
	o := &observedEntry{
		member: m, record: rec, phase: p.phase, unchanged: max(now.Sub(last.Since), 0), alive: last.changes > 1,
		sameClock: d.store.isSameClock(&rec), last: p, at: now,
	}
	if m.State != queue.Ended && !p.leaves() {
		o.ttlLeft = max(m.ttl-o.unchanged, 0)
	}
	if o.sameClock {
		o.ttlLeft = min(o.ttlLeft, max(p.sent.Add(m.ttl).Sub(now), 0))
	}
	o.holdLeft = o.heldFor(now)
	o.dead = o.ttlLeft == 0 && o.holdLeft == 0
	// An entry that runs a command may outlive its golock: only time tells. So the record
	// is read again: before its end the process may have begun to run one.
	if p.phase == phaseJoined && m.State != queue.Ended && d.store.gone(&rec) {
		again, _, err := d.readRecord(m.record())
		o.dead = o.dead || (err == nil && again == p)
	}
	return o, nil
}

// compare gives the observation since when an entry's heartbeat has been the same.
func (d *directory) compare(m *member, p heartbeat, now locks.Instant) observation {
	all := d.observed
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byRecord == nil {
		d.readNotes(now)
	}
	text := ""
	if p != (heartbeat{}) {
		text = p.String()
	}
	if m.State == queue.Ended { // its rest is counted from then on
		text = "E" + text
	}
	last, known := all.byRecord[m.record()]
	if !known || (p != (heartbeat{}) && last.Heartbeat != text) {
		last = observation{Heartbeat: text, Since: d.store.clock(), changes: last.changes + 1}
		all.byRecord[m.record()], all.isNew = last, true
	}
	return last
}

// heldFor is what is left of an entry's hold. It is known on the clock on which it was
// granted; on others it counts from the last change of the entry.
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

// A run that does not wait sees each heartbeat once. It notes what it has seen for the
// next run on the same clock; otherwise among such runs a dead entry would never expire.

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

// writeNotes notes what was seen of the entries that are still there. Errors are ignored:
// the next run sees it again.
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
