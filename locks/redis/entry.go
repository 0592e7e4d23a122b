package redis

import (
	"context"
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
	within   []string

	mu      sync.Mutex // guards what follows; not held while the server is asked
	name    string     // "" if only the ref is known
	ttl     time.Duration
	epoch   string
	record  *record       // nil: not known
	indexed locks.Instant // when the name was last put into the index
	closed  bool
	wait    *waiting     // nil: it does not wait
	events  *leaseEvents // nil: nobody has asked for events
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := &entry{store: s, ref: r.Ref, name: r.Name, noWait: r.NoWait, within: lease.Enclosing(r), record: newRecord(r)}
	e.ttl = e.record.ttl()
	if r.MaxQueue != nil {
		e.maxQueue = strconv.Itoa(*r.MaxQueue)
	}
	if r.Replace != locks.ReplaceNone {
		e.by = locks.ReplacedBy(r)
	}
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
		e.record.Join = e.wait.nextJoin()
	}
	k, ttl := e.call(step), e.ttl
	e.mu.Unlock()

	sent := e.store.clock()
	r, err := e.store.once(ctx, ttl, k)
	if err != nil {
		return lease.Answer{}, sent, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := lease.Answer{
		Verdict: r.Verdict, Epoch: r.Epoch, Place: r.Place, Recheck: r.Recheck.duration(), Quarantine: r.Quarantine.duration(),
		QuarantineCause: "the server has restarted, or another one took over", Waiters: r.Waiters, Full: r.Full, By: r.By, Existed: r.Existed, Inside: r.Inside,
	}
	if r.Record != nil {
		e.learn(r.Epoch, r.Record)
		e.addToIndex(r.Name)
		if r.NoRunID {
			e.store.noRunID.Store(true)
		}
	}
	entries := entriesOf(r.Entries, e.name, e.ref.Key)
	switch a.Verdict {
	case lease.Granted, lease.Held:
		a.Grant, a.TTL = e.record.grant(e.ref), e.ttl
		a.Replaced = entries
		e.stopWaiting()
	case lease.Queued:
		a.Replaced = entries
		if e.wait != nil {
			e.wait.asked = sent
			a.Recheck = e.wait.spread(e.ref, a.Recheck)
		}
	case lease.Busy, lease.Nested:
		a.Holders = entries
	}
	return a, sent, nil
}

func (e *entry) call(step lease.Step) call {
	k := e.store.call(string(step), e.ref.Key)
	k.id, k.name, k.epoch, k.record, k.noWait = e.ref.ID.String(), e.name, e.epoch, e.record.text(), e.noWait
	k.maxQueue, k.by = e.maxQueue, e.by
	k.within = strings.Join(e.within, ",")
	return k
}

func (e *entry) learn(epoch string, r *record) {
	e.epoch, e.record, e.ttl = epoch, r, r.ttl()
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
	member, span := e.name, max(10*e.ttl, indexSpan)+e.record.Hold.duration()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lease.LongestAttempt)
		defer cancel()
		until := float64(time.Now().Add(span).UnixMilli())
		_ = client.ZAdd(ctx, s.index(), goredis.Z{Score: until, Member: member}).Err()
		_ = client.Expire(ctx, s.index(), span).Err()
	}()
}

// entriesOf is what the contract shows of those that are listed.
func entriesOf(all []listed, name string, key locks.Key) []locks.Entry {
	var entries []locks.Entry
	for _, l := range all {
		r := &l.Record
		e := locks.Entry{
			Name: name, State: l.State, Claim: locks.Claim{Weight: r.Weight, Max: r.Max, Priority: r.Priority, Ticket: int64(r.Ticket)},
			Since: time.UnixMicro(int64(r.Since)), Expires: l.Left.duration(), TTL: r.ttl(), Ended: l.Ended, Evicted: l.By,
		}
		r.Owner.Describe(&e)
		if l.Hold > 0 {
			e.HeldTill = time.Now().Add(l.Hold.duration())
		}
		e.Ref, _ = locks.ParseRef(key.String() + "-" + l.ID)
		if l.State == locks.Holding {
			g := r.grant(e.Ref)
			e.Slots, e.Fence = g.Slots, g.Fence
		}
		entries = append(entries, e)
	}
	return entries
}
