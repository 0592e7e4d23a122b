package etcd

import (
	"context"
	"time"

	"golock/locks/queue"
)

// passOver is how long a waiter at the front may leave a slot free that it could take. Then it counts as
// dead, and the waiter behind it takes the slot. A waiter that is only slow keeps its place.
const passOver = time.Second

// noteFront notes the first waiter that could take a slot and has not.
func (e *entry) noteFront(id string) {
	if id != e.front {
		e.front, e.since = id, e.store.clock()
	}
}

// absent returns the ID of the waiter at the front if it has left a slot free for too long, or "".
func (e *entry) absent() string {
	if e.front == "" || e.store.clock().Sub(e.since) < passOver {
		return ""
	}
	return e.front
}

// waitsForFront reports whether a request that would be refused waits until the waiter at the front has taken
// its slot, because there is room for both. The first call sets refuseAt, the end of that wait. A run that
// starts may be that waiter for a moment: it queues if another run was faster, and then takes what is free.
func (e *entry) waitsForFront(s *state, d *queue.Decision) bool {
	isRefused := d.Verdict == queue.Busy || d.Verdict == queue.Nested
	if !isRefused || d.Due == "" {
		return false
	}
	served := s.view(e.id, e.request.Name, "").Served()
	verdict := queue.Decide(served, e.joining()).Verdict
	hasRoom := verdict == queue.Granted || verdict == queue.Queued
	if !hasRoom {
		return false
	}
	e.noteFront(d.Due)
	if e.refuseAt == 0 {
		e.refuseAt = e.since.Add(passOver)
	}
	return e.store.clock() < e.refuseAt
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
