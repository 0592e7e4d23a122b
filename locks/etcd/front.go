package etcd

import (
	"context"
	"time"

	"golock/locks/queue"
)

// passOver is how long a waiter at the front may leave a slot free that it could take. Then it counts as
// dead, and the waiter behind it takes the slot. A waiter that is only slow keeps its place.
const passOver = time.Second

// rejoinPause is how long a waiter that rejoins with its ticket leaves a free slot to others. After an outage that has
// ended all leases, the waiters come back in any order. It is less than passOver, so that the waiter at the front is not
// passed over meanwhile.
const rejoinPause = passOver / 4 * 3

// prepareToRejoin prepares an entry that has a ticket for joining again.
func (e *entry) prepareToRejoin(s *state) {
	if e.want.Claim.Ticket == 0 {
		return
	}
	e.takeFrom = e.store.clock().Add(rejoinPause)
	// If the cluster was restored from a backup, its revision is less than tickets of before, with which the entry
	// would be behind all newcomers.
	e.want.Claim.Ticket = min(e.want.Claim.Ticket, s.revision)
}

// noteFront notes the first waiter that could take a slot and has not.
func (e *entry) noteFront(id string) {
	if id != e.front {
		e.front, e.frontSince = id, e.store.clock()
	}
}

// absent returns the ID of the waiter at the front if it has left a slot free for too long, or "".
func (e *entry) absent() string {
	if e.front == "" || e.store.clock().Sub(e.frontSince) < passOver {
		return ""
	}
	return e.front
}

// hasRoomBesideFront reports whether a request that would be refused could take a slot, or a place, if the
// waiter at the front had taken its slot. A run that starts may be that waiter for a moment: it queues if
// another run was faster, and then takes what is free.
func (e *entry) hasRoomBesideFront(s *state, d *queue.Decision) bool {
	isRefused := d.Verdict == queue.Busy || d.Verdict == queue.Nested
	if !isRefused || d.Due == "" {
		return false
	}
	served := s.view(e.id, e.request.Name, "").Served()
	verdict := queue.Decide(served, e.joining()).Verdict
	return verdict == queue.Granted || verdict == queue.Queued
}

// postponeRefusal notes the waiter at the front for a request that waits until that waiter has taken its slot.
// The first call sets the end of that wait.
func (e *entry) postponeRefusal(front string) {
	e.noteFront(front)
	if e.refuseAt == 0 {
		e.refuseAt = e.frontSince.Add(passOver)
	}
}

// awaitFront waits until the waiter at the front has left the queue, or its time is over. It returns the state
// after that.
func (e *entry) awaitFront(ctx context.Context, l *link, s *state) (next *state, err error) {
	limited, cancel := context.WithTimeout(ctx, e.refuseAt.Sub(e.store.clock()))
	defer cancel()
	news, err := l.begin("Watch/Watch", watchFrom(span{from: s.keyOf(e.front)}, s.revision+1, onlyDeletions), moreFollow)
	if err != nil {
		return nil, err
	}
	defer news.close()
	for {
		n, err := news.news(limited)
		if err != nil || len(n.events) > 0 { // after an error of the watch, look finds out more
			return e.look(ctx, l)
		}
	}
}
