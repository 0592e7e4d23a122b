package redis

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
)

// entry implements lease.Entry.
type entry struct {
	store    *Store
	ref      locks.Ref
	noWait   bool
	maxQueue string // how many may wait already; "": any number
	by       string // who it is, for those that it evicts
	within   []locks.Ref

	mu      sync.Mutex // guards what follows; not held while the server is asked
	name    string     // "" if only the ref is known
	ttl     time.Duration
	epoch   string
	record  record
	raw     string        // the record in the store's form; "" if not known
	indexed locks.Instant // when the name was last put into the index
	pinned  bool          // it keeps the connection open
	closed  bool
	wait    *waiting     // nil: it does not wait
	events  *leaseEvents // nil: nobody has asked for events
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := &entry{store: s, ref: r.Ref, name: r.Name, ttl: r.TTL, noWait: r.NoWait, within: lease.Enclosing(r)}
	if e.ttl <= 0 {
		e.ttl = lease.DefaultTTL
	}
	if r.MaxQueue != nil {
		e.maxQueue = strconv.Itoa(*r.MaxQueue)
	}
	if r.Replace != locks.ReplaceNone {
		e.by = locks.ReplacedBy(r)
	}
	claim := r.Claim
	claim.Ticket = 0              // the store gives them
	const tick = time.Millisecond // of the store's clock
	owner, _ := json.Marshal(lease.ThisOwner(r))
	e.record = record{ttl: e.ttl, claim: claim, replace: r.Replace, hold: (r.Hold + tick - 1).Truncate(tick), owner: string(owner)}
	e.raw = e.record.String()
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step lease.Step) (lease.Answer, locks.Instant, error) {
	e.mu.Lock()
	if e.events != nil && e.events.err != nil && step == lease.Renew {
		err := e.events.err
		e.events.err = nil
		e.mu.Unlock()
		return lease.Answer{}, 0, err
	}
	if e.wait != nil && step == lease.Join {
		if listens := e.wait.announce(); listens != e.record.listens {
			e.record.listens = listens
			e.raw = e.record.String()
		}
	}
	k, ttl, listens := e.call(step), e.ttl, e.record.listens
	e.mu.Unlock()

	sent := e.store.clock()
	a, err := e.store.once(ctx, ttl, k)
	if err != nil {
		return lease.Answer{}, sent, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch a.Verdict {
	case lease.Granted, lease.Queued, lease.Held:
		e.learn(a.Epoch, a.raw, a.record)
		e.addToIndex(a.name)
		if a.noRunID {
			e.store.noRunID.Store(true)
		}
	}
	entries := e.entries(a)
	switch a.Verdict {
	case lease.Granted, lease.Held:
		a.Grant, a.TTL = e.grant(), e.ttl
		a.Replaced = entries
		e.stopWaiting()
	case lease.Queued:
		a.Replaced = entries
		if e.wait != nil {
			e.wait.asked, e.wait.told = sent, listens
			a.Recheck = e.wait.spread(e.ref, a.Recheck)
		}
	case lease.Busy, lease.Nested:
		a.Holders = entries
	}
	if step == lease.Join && (a.Verdict == lease.Granted || a.Verdict == lease.Queued) {
		e.pin()
	}
	for _, w := range e.within {
		if idOf(w) == a.inside {
			a.Inside = w
		}
	}
	return a.Answer, sent, nil
}

func (e *entry) call(step lease.Step) call {
	k := e.store.call(string(step), e.ref.Key)
	k.id, k.name, k.epoch, k.record, k.noWait = idOf(e.ref), e.name, e.epoch, e.raw, e.noWait
	k.maxQueue, k.by = e.maxQueue, e.by
	ids := make([]string, len(e.within))
	for i, w := range e.within {
		ids[i] = idOf(w)
	}
	k.within = strings.Join(ids, ",")
	return k
}

func (e *entry) learn(epoch, raw string, r record) {
	e.epoch, e.raw, e.record, e.ttl = epoch, raw, r, r.ttl
}

func (e *entry) grant() locks.Grant {
	return locks.Grant{Ref: e.ref, Slots: e.record.slots, Fence: e.record.fence}
}

func (e *entry) entries(a reply) []locks.Entry {
	var all []locks.Entry
	for i := range a.entries {
		all = append(all, a.entries[i].entry(e.name, e.ref.Key))
	}
	return all
}

// pin keeps the connection open until Close.
func (e *entry) pin() {
	if e.pinned || e.closed {
		return
	}
	_, err := e.store.connection.use(e.ttl)
	e.pinned = err == nil
}

// Close implements lease.Entry.
func (e *entry) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.stopWaiting()
	if e.events != nil {
		e.events.stop()
	}
	if e.pinned {
		e.pinned = false
		e.store.connection.done()
	}
}

// indexSpan is how long a name stays in the index, at least.
const indexSpan = 24 * time.Hour

// addToIndex writes the name into the index that Entries reads, again for a long run.
// In a cluster the script cannot, as the index lives on another node. If it fails, nothing
// is lost but a line of a list without a name.
func (e *entry) addToIndex(name string) {
	if name != "" {
		e.name = name
	}
	s, now := e.store, e.store.clock()
	if s.target.kind != cluster || e.indexed != 0 && now.Sub(e.indexed) < indexSpan/2 {
		return
	}
	client, err := s.connection.use(e.ttl)
	if err != nil {
		return
	}
	e.indexed = now
	member, span := e.name, max(10*e.ttl, indexSpan)+e.record.hold
	go func() {
		defer s.connection.done()
		ctx, cancel := context.WithTimeout(context.Background(), lease.LongestAttempt)
		defer cancel()
		until := float64(time.Now().Add(span).UnixMilli())
		_ = client.ZAdd(ctx, s.index(), goredis.Z{Score: until, Member: member}).Err()
		_ = client.Expire(ctx, s.index(), span).Err()
	}()
}

// entry is what the contract shows of a listed one.
func (l *listed) entry(name string, key locks.Key) locks.Entry {
	e := locks.Entry{
		Name: name, Ref: locks.Ref{Key: key}, State: l.state, Claim: l.record.claim, Since: time.UnixMicro(l.record.since),
		Expires: l.left, TTL: l.record.ttl, Ended: l.ended, Evicted: l.by,
	}
	var owner lease.Owner
	_ = json.Unmarshal([]byte(l.record.owner), &owner)
	owner.Describe(&e)
	if l.hold > 0 {
		e.HeldTill = time.Now().Add(l.hold)
	}
	if id, err := hex.DecodeString(l.id); err == nil {
		copy(e.Ref.ID[:], id)
	}
	if l.state == locks.Holding {
		e.Slots, e.Fence = l.record.slots, l.record.fence
	}
	return e
}
