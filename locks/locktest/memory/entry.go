package memory

import (
	"context"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/owner"
	"golock/locks/queue"
)

// entry is the client's side of one entry. It implements lease.Entry.
type entry struct {
	store     *Store
	ref       locks.Ref
	name      string
	ttl       time.Duration
	hold      time.Duration // the hold that begins with the grant
	laterHold time.Duration // the hold that begins with the step Hold
	owner     owner.Owner
	wake      chan struct{} // gets a value when a waiter has to look, or a holder has to renew

	mu       sync.Mutex
	question queue.Question // what the next step asks: it has the ticket, the slots and the epoch of the last answer
}

func (s *Store) newEntry(r locks.Request) *entry {
	e := s.entryOf(r.Ref, locks.ReplacedBy(r))
	e.name, e.ttl, e.hold, e.laterHold, e.owner = r.Name, r.TTL, r.GrantHold(), r.LaterHold(), owner.Of(r)
	q := &e.question
	q.Entry.Claim, q.Entry.Replace = r.Claim, r.Replace
	q.Entry.Claim.Ticket = 0 // the table gives tickets
	q.NoWait, q.MaxQueue, q.Within = r.NoWait, r.MaxQueue, queue.Enclosing(r)
	return e
}

// entryOf returns an entry that another client has made, or that is to be evicted.
func (s *Store) entryOf(ref locks.Ref, evictor string) *entry {
	e := &entry{store: s, ref: ref, ttl: lease.DefaultTTL, wake: make(chan struct{}, 1)}
	e.question = queue.Question{Entry: queue.Entry{ID: ref.ID.String(), State: queue.Waiting}, By: evictor}
	return e
}

// Ask implements lease.Entry.
func (e *entry) Ask(ctx context.Context, step queue.Step) (a lease.Answer, sent locks.Instant, err error) {
	e.mu.Lock()
	q := e.question
	e.mu.Unlock()
	q.Step = step
	sent = now()
	ctx, cancel := context.WithTimeout(ctx, lease.AttemptLimit(e.ttl, locks.Distance{}))
	defer cancel()
	r, err := travel(ctx, e.store, q, func() reply { return e.store.table.step(e, q) })
	if err != nil {
		return a, sent, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.question.Epoch = r.Epoch
	if r.after.ID != "" {
		e.question.Entry = r.after
	}
	return r.Answer, sent, nil
}

// Sleep implements lease.Entry.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, _ func()) (a lease.Answer, sent locks.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, nap.For)
	defer cancel()
	select {
	case <-e.wake:
	case <-ctx.Done():
	}
	return a, 0, nil
}

// reply is an answer, with what its entry has to know for the next question.
type reply struct {
	lease.Answer
	after queue.Entry // the entry after the step; zero if it is not in the queue any more
}

// Events implements lease.Entry.
func (e *entry) Events() <-chan struct{} { return e.wake }

// Close implements lease.Entry. Nothing is open.
func (e *entry) Close() {}

// now reads the clock, which is the same for clients and table.
func now() locks.Instant { return locks.Instant(time.Now().UnixNano()) }
