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
	by       string // who asks, to be told to those evicted
	within   string // the enclosing runs of the same lock

	mu      sync.Mutex // guards what follows; not held while the server is asked
	name    string     // "" if only the ref is known
	ttl     time.Duration
	epoch   string
	record  *record       // nil: not known
	indexed locks.Instant // when the name was last put into the index of a cluster
	fault   error         // of a listener: the next Ask returns it
	closed  bool
	wait    *waiting // nil: it does not wait

	events     chan locks.Event // nil: nobody has asked for them
	stopEvents context.CancelFunc
}

func (s *Store) entryOf(ref locks.Ref) *entry {
	return &entry{store: s, ref: ref, ttl: lease.DefaultTTL}
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref)
	e.name, e.noWait, e.within, e.record = r.Name, r.NoWait, strings.Join(lease.Enclosing(r), ","), newRecord(r)
	e.ttl = e.record.TTL.duration()
	if r.MaxQueue != nil {
		e.maxQueue = strconv.Itoa(*r.MaxQueue)
	}
	if r.Replace != locks.ReplaceNone {
		e.by = locks.ReplacedBy(r)
	}
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step lease.Step) (a lease.Answer, sent locks.Instant, err error) {
	e.mu.Lock()
	if e.fault != nil && (step == lease.Join || step == lease.Renew) {
		defer e.mu.Unlock()
		return a, 0, e.fault
	}
	if e.wait != nil && step == lease.Join {
		e.record.Join = e.wait.nextJoin()
	}
	ttl := e.ttl
	c := call{
		mode: string(step), key: e.ref.Key, id: e.ref.ID.String(), name: e.name, epoch: e.epoch, record: e.record.text(),
		noWait: e.noWait, within: e.within, maxQueue: e.maxQueue, by: e.by,
	}
	e.mu.Unlock()

	sent = e.store.clock()
	r, err := attempt(ctx, e.store, ttl, e.store.runScript(c))
	if err != nil {
		return a, sent, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a = r.Answer
	a.Recheck, a.Quarantine = r.Recheck.duration(), r.Quarantine.duration()
	a.QuarantineCause = "the server has restarted, or another one took over"
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
		a.Grant, a.TTL, a.Replaced = e.record.grant(e.ref), e.ttl, entries
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

func (e *entry) learn(epoch string, r *record) {
	e.epoch, e.record, e.ttl = epoch, r, r.TTL.duration()
}

// Close implements lease.Entry.
func (e *entry) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.stopWaiting()
	if e.stopEvents != nil {
		e.stopEvents()
	}
}

// indexSpan is how long a name stays in the index, at least.
const indexSpan = 24 * time.Hour

// addToIndex writes the name into the index of a Cluster, again for a long run. The script
// cannot, as the index lives on another node. If it fails, golock ls misses the name.
func (e *entry) addToIndex(name string) {
	if name != "" {
		e.name = name
	}
	s, now := e.store, e.store.clock()
	if s.target.kind != cluster || e.indexed != 0 && now.Sub(e.indexed) < indexSpan/2 {
		return
	}
	client, err := s.use(e.ttl)
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
