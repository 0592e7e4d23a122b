package redis

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// entry implements lease.Entry.
type entry struct {
	store     *Store
	ref       locks.Ref
	life      context.Context // the context of the listener
	end       context.CancelFunc
	listening sync.Once
	events    chan struct{} // gets a value when the listener has heard something

	mu         sync.Mutex // guards the fields below; it is not locked while the server is asked
	call       call       // the call of the next step, without the record
	ttl        time.Duration
	hold       millis        // the hold that counts from the step Hold; it never changes
	record     *record       // nil as long as the record is not known
	asked      locks.Instant // the moment before the last answered Join was sent
	subscribed bool
	message    *message      // the message that nobody has read yet; nil if there is none
	indexed    locks.Instant // when the name was last put into the index of a cluster
	fault      error         // a panic of the listener, which the next Ask returns
}

func (s *Store) entryOf(ref locks.Ref, by string) *entry {
	e := &entry{
		store: s, ref: ref, ttl: lease.DefaultTTL, events: make(chan struct{}, 1),
		call: call{key: ref.Key, ID: ref.ID.String(), By: by},
	}
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref, locks.ReplacedBy(r))
	e.learn("", newRecord(r))
	e.hold = wholeMillis(r.LaterHold())
	e.call.Name, e.call.Within, e.call.NoWait, e.call.MaxQueue = r.Name, queue.Enclosing(r), r.NoWait, r.MaxQueue
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step queue.Step) (a lease.Answer, sent locks.Instant, err error) {
	e.mu.Lock()
	if e.fault != nil && (step == queue.Join || step.Renews()) {
		defer e.mu.Unlock()
		return a, 0, e.fault
	}
	limit, c := e.store.attemptLimit(e.ttl), e.callOf(step)
	if step == queue.Join && e.record != nil && e.record.Ticket == 0 {
		limit = max(limit, newcomerAttempt()) // only the first answer shows how far away the server is
	}
	e.mu.Unlock()

	sent = e.store.clock()
	r, err := attempt(ctx, e.store, limit, e.store.runScript(c))
	if err != nil {
		return a, sent, err
	}
	stored, entries, err := r.read(c)
	if err != nil {
		return a, sent, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a = r.Answer
	a.Nap, a.Quarantine = queue.Nap{For: r.Recheck.duration()}, r.Quarantine.duration()
	a.QuarantineCause = "the server has restarted, or another one took over"
	if stored != nil {
		e.learn(r.Epoch, stored)
		e.call.Name = cmp.Or(r.Name, e.call.Name)
		e.addToIndex()
		if r.NoRunID {
			e.store.noRunID.Store(true)
		}
	}
	switch a.Verdict {
	case queue.Granted, queue.Held:
		a.Grant, a.TTL, a.Replaced = e.record.grant(e.ref), e.ttl, entries
		a.Distance = e.store.distance()
	case queue.Queued:
		e.asked, a.Replaced = sent, entries
	case queue.Busy, queue.Nested:
		a.Holders = entries
	}
	return a, sent, nil
}

// callOf returns the arguments of a step. The caller has locked e.mu.
func (e *entry) callOf(step queue.Step) call {
	c := e.call
	c.Mode, c.Record, c.Subscribed = string(step), e.record, e.subscribed
	if step == queue.Hold {
		c.Hold = e.hold
	}
	c.Every = millis(queue.AskEvery(e.ttl).Milliseconds())
	return c
}

// learn stores what the server has told of the entry.
func (e *entry) learn(epoch string, r *record) {
	e.call.Epoch, e.record, e.ttl = epoch, r, r.TTL.duration()
}

// Close implements lease.Entry.
func (e *entry) Close() { e.end() }

// indexSpan is the least time for which a name stays in the index.
const indexSpan = 24 * time.Hour

// indexScript adds a name to the index. It never shortens the time for which the name stays, because another run
// of the name may have a longer hold.
const indexScript = `redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[4])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end`

// addToIndex writes the name into the index of a Cluster, and writes it again during a long run.
// The script of the queue cannot do it, because the index lives on another node. If addToIndex
// fails, golock ls misses the name.
func (e *entry) addToIndex() {
	s, now := e.store, e.store.clock()
	if s.target.kind != cluster || e.indexed != 0 && now.Sub(e.indexed) < indexSpan/2 {
		return
	}
	client, _ := s.client() // the client exists, because the server has just answered
	e.indexed = now
	member, span := e.call.Name, max(10*e.ttl, indexSpan)+e.record.Hold.duration()
	go func() {
		defer locks.Recover(new(error))
		ctx, cancel := context.WithTimeout(context.Background(), lease.LongestAttempt)
		defer cancel()
		now, ms := time.Now().UnixMilli(), span.Milliseconds()
		_ = client.Eval(ctx, indexScript, []string{s.index()}, member, now+ms, ms, now).Err()
	}()
}
