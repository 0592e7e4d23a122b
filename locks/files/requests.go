package files

import (
	"math/rand/v2"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/queue"
)

// A newcomer that loses a commit puts its request beside the versions. The next process
// that makes a version lets it into the queue. So a burst needs few versions, and nobody
// retries for long.

const requestPrefix = "join." // and the name of the record

// Bounds for what others may have put there.
const (
	maxRequest  = 4 << 10 // bytes of a request: a line for a waiter
	maxRequests = 1000    // which a version lets in
)

// canBeRequested reports whether others can answer the question: the entry needs to know
// no more than that it waits or holds.
func (p *step) canBeRequested() bool {
	q := &p.question
	return q.Step == queue.Join && p.member.Claim.Ticket == 0 && !q.NoWait && q.MaxQueue == nil && len(q.Within) == 0 &&
		q.Entry.Replace == locks.ReplaceNone
}

// putRequest puts the request where others find it. If that fails, the entry goes on alone.
func (e *entry) putRequest() {
	if e.requested || e.create() != nil {
		return
	}
	e.requested = true
	e.store.at("request")
	_ = e.dir.makeFile(requestPrefix+e.member.record(), (&state{entries: []member{e.member}}).text())
}

// removeRequest removes the request before the entry uses its place: nobody must let it in a
// second time.
func (e *entry) removeRequest() error {
	if !e.requested {
		return nil
	}
	err := e.dir.removeFile(requestPrefix + e.member.record())
	e.requested = err != nil
	return err
}

// admitRequests makes the join of each entry that has put a request into the directory. The order does
// not matter, because none of them has a place yet. A request that cannot be answered stays: the step
// must not fail because of it.
func (p *step) admitRequests(h *handle, l listing, s *state, r *result) (*state, error) {
	for _, name := range p.requests(l) {
		record := strings.TrimPrefix(name, requestPrefix)
		text, err := readAt(h.fd, name, maxRequest)
		if err != nil {
			continue // it was removed, or golock has not made it
		}
		request, err := parseState(text)
		if err != nil || len(request.entries) != 1 {
			continue
		}
		m := request.entries[0]
		if m.flaw != nil || m.record() != record || s.find(m.ID) != nil || !m.isRequest() {
			continue
		}
		seen, err := p.observe(&m, false)
		if err != nil {
			continue // the owner of the request joins by itself
		}
		if seen.isDead || seen.phase == 0 { // an entry that has left has no record
			_ = unlinkAt(h.fd, name)
			continue
		}
		if !h.sameOwner(name, recordsDir+"/"+record) {
			continue
		}
		r.observed[m.ID] = seen
		q := &step{directory: p.directory, member: m, question: queue.Question{Step: queue.Join, Entry: m.Entry}}
		next, _, err := q.answer(s, &result{observed: r.observed, removed: r.removed})
		if len(locks.AsInvalid(err)) > 0 {
			return s, nil // nobody joins a queue with invalid entries
		}
		if err != nil {
			return nil, err
		}
		s = next
	}
	return s, nil
}

// requests returns the names of request files, but at most maxRequests. The owners of the others join by
// themselves, or a later version lets them in.
func (p *step) requests(l listing) (names []string) {
	own := requestPrefix + p.member.record()
	for _, name := range l.names {
		if strings.HasPrefix(name, requestPrefix) && name != own {
			names = append(names, name)
		}
	}
	if len(names) > maxRequests {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:maxRequests]
	}
	return names
}

// isRequest reports whether putRequest can have written a member.
func (m *member) isRequest() bool {
	c := m.Claim
	return c.Ticket == 0 && (c.Max == 0 || c.Weight <= c.Max) && reflect.DeepEqual(*m, member{
		Entry: queue.Entry{ID: m.ID, State: queue.Waiting, Claim: c, Reachable: true}, life: m.life, ttl: m.ttl, hold: m.hold, extra: m.extra,
	})
}

// sameOwner reports whether two files belong to the same user.
func (h *handle) sameOwner(name, other string) bool {
	a, err := stat(h.fd, name, unix.AT_SYMLINK_NOFOLLOW)
	b, err2 := stat(h.fd, other, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && err2 == nil && a.Uid == b.Uid
}
