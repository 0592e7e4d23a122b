package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// A newcomer that loses a commit puts its request beside the versions. The next process
// that makes a version lets it into the queue. So a burst needs few versions, and nobody
// retries for long.

const requestPrefix = "join." // and the name of the record

// canBeFolded reports whether others can answer the question: the entry needs to know
// no more than that it waits or holds.
func (p *step) canBeFolded() bool {
	q := &p.question
	return q.Step == lease.Join && p.own.ticket == 0 && !q.NoWait && q.MaxQueue == nil && len(q.Within) == 0 &&
		q.Entry.Replace == locks.ReplaceNone
}

// ask puts the request where others find it. If that fails, the entry goes on alone.
func (e *entry) ask() {
	if e.asked || e.create() != nil {
		return
	}
	e.asked = true
	e.store.at("ask")
	_ = makeFile(e.requestPath(), e.dir.path, (&state{entries: []member{e.own}}).text())
}

func (e *entry) requestPath() string { return e.dir.path + "/" + requestPrefix + e.own.record() }

// unask removes the request before the entry uses its place: nobody must let it in a
// second time.
func (e *entry) unask() error {
	if !e.asked {
		return nil
	}
	err := removeFile(e.requestPath())
	e.asked = err != nil
	return err
}

// fold lets in those who have asked, in no particular order: none of them knows its
// place yet.
func (p *step) fold(h *handle, l listing, s *state, r *result) (*state, error) {
	for _, name := range l.names {
		record, ok := strings.CutPrefix(name, requestPrefix)
		if !ok || record == p.own.record() {
			continue
		}
		text, err := readAt(h.fd, name, maxFile)
		if err != nil {
			continue // it was removed, or golock has not made it
		}
		asked, err := parseState(text)
		if err != nil || len(asked.entries) != 1 {
			continue
		}
		m := asked.entries[0]
		if m.record() != record || s.find(m.id) != nil || !m.isRequest() || !h.sameOwner(name, recordsDir+"/"+record) {
			continue
		}
		seen, err := p.judge(&m, false)
		if err != nil {
			return nil, err
		}
		if seen.dead || seen.phase == 0 { // an entry that has left has no record
			_ = unlinkAt(h.fd, name)
			continue
		}
		r.observed[m.id] = seen
		q := &step{directory: p.directory, own: m, question: queue.Question{Step: lease.Join, Entry: m.entry()}}
		if s, _, err = q.answer(s, &result{observed: r.observed, removed: r.removed}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// isRequest reports whether ask can have written a member.
func (m *member) isRequest() bool {
	return (m.max == 0 || m.weight <= m.max) && *m == member{
		id: m.id, life: m.life, state: queue.Waiting, weight: m.weight, max: m.max, priority: m.priority,
		ttl: m.ttl, hold: m.hold,
	}
}

// sameOwner reports whether two files belong to the same user.
func (h *handle) sameOwner(name, other string) bool {
	a, err := stat(h.fd, name, unix.AT_SYMLINK_NOFOLLOW)
	b, err2 := stat(h.fd, other, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && err2 == nil && a.Uid == b.Uid
}
