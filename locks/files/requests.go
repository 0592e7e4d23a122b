package files

import (
	"math/rand/v2"
	"reflect"
	"strings"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/queue"
)

// If a newcomer loses a commit to another process, it puts a request file beside the versions. The next
// process that makes a version lets the newcomer into the queue. So a burst of newcomers needs few
// versions, and none of them retries for long.

// requestPrefix begins the name of a request file. The name of the record follows.
const requestPrefix = "join."

// These constants limit what golock takes from requests, which others may have written.
const (
	maxRequest  = 4 << 10 // bytes of a request: a state with one waiter
	maxRequests = 1000    // requests that one version admits
)

// canBeRequested reports whether another process may make this join: the entry must be a newcomer that may wait in
// any queue and replaces nobody.
func (p *step) canBeRequested() bool {
	q := &p.question
	isNewcomer := q.Step == queue.Join && p.member.Claim.Ticket == 0
	mayAlwaysWait := !q.NoWait && q.MaxQueue == nil && len(q.Within) == 0
	return isNewcomer && mayAlwaysWait && q.Entry.Replace == locks.ReplaceNone
}

// putRequest makes the request file. If that fails, the entry goes on without one.
func (e *entry) putRequest() {
	if e.requested {
		return
	}
	if err := e.create(); err != nil {
		return
	}
	e.requested = true
	e.store.hook("request")
	_ = e.dir.makeFile(requestPrefix+e.member.record(), (&state{entries: []member{e.member}}).text())
}

// removeRequest removes the request file before the entry uses its place: no process may admit it a
// second time.
func (e *entry) removeRequest() error {
	if !e.requested {
		return nil
	}
	err := e.dir.removeFile(requestPrefix + e.member.record())
	e.requested = err != nil
	return err
}

// admitRequests makes the join of each entry that has put a request into the directory. It does so in any
// order, because none of them has a place yet. If it cannot admit a request, the request stays, and the
// step does not fail.
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
		isValid := m.flaw == nil && m.record() == record && m.isRequest()
		if !isValid || s.find(m.ID) != nil {
			continue
		}
		observed, err := p.observe(&m, notForListing)
		if err != nil {
			continue // the owner of the request joins by itself
		}
		if observed.isDead || observed.phase == 0 { // an entry that has left has no record
			_ = unlinkAt(h.fd, name)
			continue
		}
		if !h.sameOwner(name, recordsDir+"/"+record) {
			continue
		}
		r.observed[m.ID] = observed
		q := &step{directory: p.directory, member: m, question: queue.Question{Step: queue.Join, Entry: m.Entry}}
		next, _, err := q.answer(s, &result{observed: r.observed, removed: r.removed})
		if len(locks.AsInvalid(err)) > 0 {
			return s, nil // no entry joins a queue with invalid entries
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
	requestOfCaller := requestPrefix + p.member.record()
	for _, name := range l.names {
		if strings.HasPrefix(name, requestPrefix) && name != requestOfCaller {
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
	if c.Ticket != 0 || (c.Max != 0 && c.Weight > c.Max) {
		return false
	}
	return reflect.DeepEqual(*m, member{
		Entry: queue.Entry{ID: m.ID, State: queue.Waiting, Claim: c, Reachable: true}, life: m.life, ttl: m.ttl, hold: m.hold, extra: m.extra,
	})
}

// sameOwner reports whether two files belong to the same user.
func (h *handle) sameOwner(name, other string) bool {
	a, errA := stat(h.fd, name, unix.AT_SYMLINK_NOFOLLOW)
	b, errB := stat(h.fd, other, unix.AT_SYMLINK_NOFOLLOW)
	return errA == nil && errB == nil && a.Uid == b.Uid
}
