package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// Who comes to wait and finds that somebody else made the version puts its request
// beside the versions. The next one that makes a version lets it in. So a burst needs
// few versions, and nobody tries for long.

const requestPrefix = "join." // and the name of the record

// canBeFolded reports whether others can answer the question: nobody needs to be told
// more than that it waits or holds.
func (p *step) canBeFolded() bool {
	q := &p.question
	return p.entry != nil && p.own.ticket == 0 && !q.NoWait && q.MaxQueue == nil && len(q.Within) == 0 && q.Entry.Replace == locks.ReplaceNone
}

// ask puts the request where others find it. That it fails is no harm.
func (e *entry) ask() {
	if e.asked || e.create() != nil {
		return
	}
	e.asked = true
	e.store.at("ask")
	_ = makeFile(e.requestPath(), e.watch.path, (&state{entries: []member{e.own}}).text())
}

func (e *entry) requestPath() string { return e.watch.path + "/" + requestPrefix + e.own.record() }

// unask takes the request away, before the entry does anything with its place: it must
// not be let in a second time.
func (e *entry) unask() error {
	if !e.asked {
		return nil
	}
	err := removeFile(e.requestPath())
	e.asked = err != nil
	return err
}

// fold lets in those who have asked. They are answered in no particular order: none of
// them knows of its place yet.
func (p *step) fold(h *handle, l listing, s *state, r *result) (*state, error) {
	for _, name := range l.names {
		record, ok := strings.CutPrefix(name, requestPrefix)
		if !ok || record == p.own.record() {
			continue
		}
		text, err := readAt(h.fd, name, maxFile)
		if err != nil {
			continue // it has gone, or golock has not made it
		}
		asked, err := parseState(text)
		if err != nil || len(asked.entries) != 1 || asked.entries[0].record() != record || s.find(asked.entries[0].id) != nil {
			continue
		}
		m := asked.entries[0]
		if !m.isRequest() || !h.sameOwner(name, recordsDir+"/"+record) {
			continue // somebody else has written it
		}
		seen, err := p.judge(&m)
		if err != nil {
			return nil, err
		}
		if seen.dead || seen.phase == 0 { // who has left has no record
			_ = unix.Unlinkat(h.fd, name, 0)
			continue
		}
		r.observed[m.id] = seen
		q := &step{watch: p.watch, own: m, question: queue.Question{Step: lease.Join, Entry: m.entry()}}
		if s, _, err = q.answer(s, &result{observed: r.observed, removed: r.removed}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// isRequest reports whether a member is one that ask can have written.
func (m *member) isRequest() bool {
	return (m.max == 0 || m.weight <= m.max) && *m == member{
		id: m.id, life: m.life, state: queue.Waiting, weight: m.weight, max: m.max, priority: m.priority, ttl: m.ttl, hold: m.hold,
	}
}

// sameOwner reports whether two files belong to the same user.
func (h *handle) sameOwner(name, other string) bool {
	var a, b unix.Stat_t
	return unix.Fstatat(h.fd, name, &a, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		unix.Fstatat(h.fd, other, &b, unix.AT_SYMLINK_NOFOLLOW) == nil && a.Uid == b.Uid
}
