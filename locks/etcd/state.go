package etcd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// state is one lock as it was in a revision. A step reads it at one moment; a watch may keep it up to date.
type state struct {
	keys
	key      locks.Key
	cluster  uint64
	revision int64

	holders map[string]pair        // the keys of holders, by ID
	holds   map[string]pair        // the keys of holds, by ID
	waiters map[string]queue.Entry // the map's keys are etcd's
	records map[string]pair        // the keys of waiters whose values were read, by ID
	tombs   map[string]string      // who evicted a waiter, by its ID
	flaws   map[string]flaw        // the map's keys are etcd's
}

// flaw is a key that golock cannot have written.
type flaw struct {
	locks.InvalidEntry
	pair     pair
	isHolder bool // the key has the form of a holder's
	ends     bool // the key is on a lease of its entry, so it expires
}

// ranges returns the requests that read the state that a waiter needs. A waiter that replaces others also
// reads their values, because it reports who they are.
func (e *entry) ranges() []rangeRequest {
	waiters := rangeRequest{span: e.waiters(), keyLeases: true}
	if e.want.Replace != locks.ReplaceNone {
		waiters = rangeRequest{span: e.waiters(), limit: pageSize}
	}
	return []rangeRequest{{span: e.holders(), limit: pageSize}, waiters, {span: span{from: e.tomb(e.id)}}}
}

// pageSize is how many keys a request reads. One answer has room for this many keys that golock has written.
const pageSize = 2000

// maxValues limits the size of all values that a reading keeps, in bytes. 10,000 values that golock writes
// take less.
const maxValues = 24 << 20

// next returns the request for the keys that did not fit into the answer, as they were in the revision.
func (a *rangeAnswer) next(q rangeRequest, revision int64) rangeRequest {
	q.from, q.revision = a.pairs[len(a.pairs)-1].key+"\x00", revision
	return q
}

// valueBytes returns the size of those values of the answer that a state keeps.
func (a *rangeAnswer) valueBytes() (n int) {
	for i := range a.pairs {
		if size := len(a.pairs[i].value); size <= maxRecord {
			n += size
		}
	}
	return n
}

// stateOf makes the state from the answers to the requests of ranges, and reads what did not fit into them.
func (e *entry) stateOf(ctx context.Context, l *link, o *txnAnswer) (*state, error) {
	requests := e.ranges()
	if len(o.answers) != len(requests) {
		return nil, network.Damaged("%d answers to %d questions", len(o.answers), len(requests))
	}
	e.lastRead = e.store.clock()
	s := e.newState(e.ref.Key, o)
	size := 0
	for i, q := range requests {
		answer := &o.answers[i]
		for answer.more && len(answer.pairs) > 0 {
			next, err := l.readRanges(ctx, answer.next(q, s.revision))
			if err != nil {
				return nil, err
			}
			answer = &next.answers[0]
			size += answer.valueBytes()
			if size > maxValues {
				return nil, network.TooLong("more than %d MiB", maxValues>>20)
			}
			for i := range answer.pairs {
				s.put(&answer.pairs[i])
			}
		}
	}
	return s, nil
}

// look reads the state from the cluster.
func (e *entry) look(ctx context.Context, l *link) (*state, error) {
	o, err := l.readRanges(ctx, e.ranges()...)
	if err != nil {
		return nil, err
	}
	return e.stateOf(ctx, l, &o)
}

// newState makes a state of the keys in an answer.
func (k keys) newState(key locks.Key, o *txnAnswer) *state {
	s := &state{
		keys: k, key: key, cluster: o.cluster, revision: o.revision,
		holders: map[string]pair{}, holds: map[string]pair{}, waiters: map[string]queue.Entry{},
		records: map[string]pair{}, tombs: map[string]string{}, flaws: map[string]flaw{},
	}
	for _, answer := range o.answers {
		for i := range answer.pairs {
			s.put(&answer.pairs[i])
		}
	}
	return s
}

// put adds a key to the state, or replaces it.
func (s *state) put(p *pair) {
	rest, ok := strings.CutPrefix(p.key, s.lock)
	if !ok {
		return
	}
	s.remove(p.key)
	switch part := rest[:min(2, len(rest))]; part {
	case holderPart:
		id, isHold := strings.CutSuffix(rest[2:], holdSuffix)
		s.putHolder(id, isHold, p)
	case waiterPart:
		e, err := s.parseWaiter(p)
		if err == nil {
			err = p.checkLease(e.ID, false)
		}
		if err != nil {
			s.noteFlaw(p, e.ID, err)
			return
		}
		s.waiters[p.key] = e
		if p.value != "" && len(p.value) <= maxRecord {
			s.records[e.ID] = *p
		}
	case tombPart:
		s.tombs[rest[2:]] = p.value
	default:
		s.noteFlaw(p, "", fmt.Errorf("key %q", locks.Printable(rest, 80)))
	}
}

// putHolder adds the key of a holder, or of a hold.
func (s *state) putHolder(id string, isHold bool, p *pair) {
	if !isID(id) {
		s.noteFlaw(p, "", fmt.Errorf("key %q", locks.Printable(p.key[len(s.lock):], 80)))
		return
	}
	r, err := parseRecord(p.value, s.key)
	if err == nil {
		_, err = r.entry(id, p.created)
	}
	if err == nil {
		err = p.checkLease(id, isHold)
	}
	switch {
	case err != nil:
		s.noteFlaw(p, id, err)
	case isHold:
		s.holds[id] = *p
	default:
		s.holders[id] = *p
	}
}

// checkLease checks that a key is on the lease that golock binds it to. A key on another lease, or on none,
// may stay for ever, and no golock removes it.
func (p *pair) checkLease(id string, isHold bool) error {
	expected, ofHold := leasesOfText(id)
	if isHold {
		expected = ofHold
	}
	if p.lease == expected {
		return nil
	}
	return fmt.Errorf("a key on lease %x", p.lease)
}

// noteFlaw notes a key that golock cannot have written.
func (s *state) noteFlaw(p *pair, id string, err error) {
	f := flaw{pair: *p, isHolder: strings.HasPrefix(p.key, s.lock+holderPart)}
	f.pair.value = "" // it may be large, and there may be many
	f.ends = isID(id) && (p.checkLease(id, false) == nil || p.checkLease(id, true) == nil)
	f.InvalidEntry = locks.InvalidEntry{ID: cmp.Or(id, p.key), TTL: lease.DefaultTTL, Err: err}
	f.Ref, _ = locks.ParseRef(s.key.String() + "-" + id)
	s.flaws[p.key] = f
}

// remove removes a key from the state.
func (s *state) remove(key string) {
	id := strings.TrimPrefix(key, s.lock+holderPart)
	delete(s.flaws, key)
	delete(s.waiters, key)
	delete(s.tombs, strings.TrimPrefix(key, s.lock+tombPart))
	if hold, isHold := strings.CutSuffix(id, holdSuffix); isHold {
		delete(s.holds, hold)
	} else {
		delete(s.holders, id)
	}
}

// order returns the waiters by their places.
func (s *state) order() []queue.Entry {
	all := make([]queue.Entry, 0, len(s.waiters))
	for _, e := range s.waiters {
		all = append(all, e)
	}
	slices.SortFunc(all, compareWaiters)
	return all
}

// compareWaiters is negative if a waits before b. Two waiters can have the same ticket after a cluster was restored from
// a backup (prepareToRejoin).
func compareWaiters(a, b queue.Entry) int {
	return cmp.Or(a.Claim.Compare(b.Claim), cmp.Compare(a.ID, b.ID))
}

// holdersNow returns the holders, and the holds of holders that have released their slots.
func (s *state) holdersNow() (all []queue.Entry) {
	for id, p := range s.holders {
		r, _ := parseRecord(p.value, s.key)
		e, _ := r.entry(id, p.created)
		if _, held := s.holds[id]; held {
			e.HoldLeft = r.Hold
		}
		all = append(all, e)
	}
	for id, p := range s.holds {
		if _, isHolder := s.holders[id]; isHolder {
			continue
		}
		r, _ := parseRecord(p.value, s.key)
		e, _ := r.entry(id, p.created)
		e.State, e.HoldLeft = queue.Ended, r.Hold
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b queue.Entry) int { return cmp.Compare(a.Fence, b.Fence) })
	return all
}

// invalid returns the keys that golock cannot have written, as entries of the lock.
func (s *state) invalid(name string) (all []locks.InvalidEntry) {
	for _, f := range s.flaws {
		f.Name = name
		all = append(all, f.InvalidEntry)
	}
	slices.SortFunc(all, func(a, b locks.InvalidEntry) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// view returns the state as a decision about an entry sees it. absent is a waiter that does not take its turn.
func (s *state) view(id, name, absent string) queue.View {
	v := queue.View{Counter: s.revision, Holders: s.holdersNow(), Waiters: s.order(), Invalid: s.invalid(name)}
	v.Total = len(v.Waiters)
	for i := range v.Waiters {
		w := &v.Waiters[i]
		w.Absent = w.ID == absent && w.ID != id
		if w.Replace != locks.ReplaceNone {
			v.Replaceable = append(v.Replaceable, *w)
		}
	}
	for _, all := range [][]queue.Entry{v.Holders, v.Waiters} {
		for i := range all {
			if all[i].ID == id {
				caller := all[i]
				v.Caller = &caller
			}
		}
	}
	if by, isEvicted := s.tombs[id]; isEvicted {
		v.Caller = &queue.Entry{ID: id, State: queue.Tombstone, Evicted: by}
	}
	return v
}

// place returns the place of a waiter, or 0 if it does not wait. For a waiter beyond the first nearPlaces it
// also returns the keys of the waiters directly before it.
func (s *state) place(id string) (place int, before [nearPlaces]string) {
	all := s.order()
	at := slices.IndexFunc(all, func(e queue.Entry) bool { return e.ID == id })
	if at >= nearPlaces {
		for i := range before {
			before[i] = s.keyOf(all[at-nearPlaces+i].ID)
		}
	}
	return at + 1, before
}

// keyOf returns the key of a waiter, or "" if there is no such waiter. A request that a frozen member sends late can
// have left a second key, with another ticket: the first one in the order of the keys counts.
func (s *state) keyOf(id string) (first string) {
	for key, e := range s.waiters {
		if e.ID == id && (first == "" || key < first) {
			first = key
		}
	}
	return first
}

// clone returns a copy.
func (s *state) clone() *state {
	c := *s
	c.holders, c.holds, c.waiters = maps.Clone(s.holders), maps.Clone(s.holds), maps.Clone(s.waiters)
	c.records, c.tombs, c.flaws = maps.Clone(s.records), maps.Clone(s.tombs), maps.Clone(s.flaws)
	return &c
}
