package files

import (
	"encoding/json"
	"maps"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// observation is a heartbeat, and since when it has been seen unchanged.
type observation struct {
	Heartbeat string        `json:"beat"`
	Since     locks.Instant `json:"since"`
	changes   int           // heartbeats that this process saw; 0: it comes from the notes
}

// observedEntry is an entry as another process sees it.
type observedEntry struct {
	*member
	record    record
	phase     byte          // of its last heartbeat; 0: it has none
	unchanged time.Duration // for which the heartbeat has been the same
	ttlLeft   time.Duration // until it is dead without another heartbeat
	holdLeft  time.Duration
	dead      bool
}

// observe reads an entry's heartbeat. One that cannot be read counts as unchanged.
func (d *directory) observe(m *member, listing bool) (*observedEntry, error) {
	d.store.at("observe")
	now, self := d.store.clock(), d.store.self
	p, rec, err := d.readRecord(m.record())
	if err != nil {
		return nil, err
	}
	o := &observedEntry{member: m, record: rec, phase: p.phase, unchanged: d.unchanged(m, p, now)}
	leaves := p.leaves()
	if leaves && listing && !rec.Process.gone(self()) {
		o.phase, leaves = phaseAccepted, false
	}
	if m.State != queue.Ended && !leaves {
		o.ttlLeft = max(m.ttl-o.unchanged, 0)
	}
	sameClock := rec.Clock != "" && rec.Clock == d.store.clockName()
	if sameClock {
		o.ttlLeft = min(o.ttlLeft, max(p.sent.Add(m.ttl).Sub(now), 0))
	}
	o.holdLeft = o.heldFor(now, sameClock)
	o.dead = o.ttlLeft == 0 && o.holdLeft == 0
	// An entry that runs a command may outlive its golock: only time tells. So the record
	// is read again: before its end the process may have begun to run one.
	if p.phase == phaseJoined && m.State != queue.Ended && rec.Process.gone(self()) {
		again, _, err := d.readRecord(m.record())
		o.dead = o.dead || (err == nil && again == p)
	}
	return o, nil
}

// unchanged tells for how long an entry's heartbeat has been the same.
func (d *directory) unchanged(m *member, p heartbeat, now locks.Instant) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.readNotes(now)
	}
	text := ""
	if p != (heartbeat{}) {
		text = p.String()
	}
	if m.State == queue.Ended { // its rest is counted from then on
		text = "E" + text
	}
	name := m.record()
	was, known := d.seen[name]
	if was.changes == 0 || (p != (heartbeat{}) && was.Heartbeat != text) {
		if !known || was.Heartbeat != text {
			was.Heartbeat, was.Since, d.newSeen = text, d.store.clock(), true
		}
		was.changes++
		d.seen[name] = was
	}
	return max(now.Sub(was.Since), 0)
}

// heldFor is what is left of an entry's hold. It is known on the clock on which it was
// granted; on others it counts from the last change of the entry.
func (o *observedEntry) heldFor(now locks.Instant, sameClock bool) time.Duration {
	m := o.member
	switch {
	case !m.hasSlots() || m.hold <= 0 || m.Evicted != "" || o.phase == phaseWithdrawn:
		return 0
	case sameClock && m.granted != 0:
		return max(m.granted.Add(m.hold).Sub(now), 0)
	case m.State == queue.Ended:
		return max(m.rest-o.unchanged, 0)
	}
	return max(m.hold-o.unchanged, 0)
}

// isAlive reports whether this process has seen the heartbeat change.
func (d *directory) isAlive(record string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[record].changes > 1
}

// A run that does not wait sees each heartbeat once. It notes what it has seen for the
// next run on the same clock; otherwise among such runs a dead entry would never expire.

// readNotes reads what other processes on this clock have seen.
func (d *directory) readNotes(now locks.Instant) {
	if text, err := readFile(d.path + "/" + seenPrefix + d.store.clockName()); err == nil && d.store.clockName() != "" {
		_ = json.Unmarshal(text, &d.seen) // damaged notes say nothing
		maps.DeleteFunc(d.seen, func(_ string, o observation) bool { return o.Since > now })
	}
	if d.seen == nil {
		d.seen = map[string]observation{}
	}
}

// writeNotes notes what was seen of the entries that are still there. Errors are ignored:
// the next run sees it again.
func (d *directory) writeNotes(s *state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.store.clockName() == "" || s == nil || !d.newSeen {
		return
	}
	notes := map[string]observation{}
	for i := range s.entries {
		if o, ok := d.seen[s.entries[i].record()]; ok {
			notes[s.entries[i].record()] = o
		}
	}
	if text, err := json.Marshal(notes); err == nil {
		_ = d.replaceFile(seenPrefix+d.store.clockName(), text)
	}
}
