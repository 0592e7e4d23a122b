package etcd

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// watch is a stream on which the cluster tells a waiter of changes.
type watch struct {
	link   *link
	stream *stream
	end    context.CancelFunc
	target [nearPlaces]string // the keys that it watches besides the entry's own; empty if it watches the whole lock

	mu    sync.Mutex // guards the fields below
	state *state     // the state of the whole lock; nil if target is not empty
	moved bool       // a key in target, or the entry's own key, does not exist any more
	err   error      // why the watch has ended; nil as long as it has not
}

// isFar reports whether the waiter that watches stands behind the first nearPlaces.
func (w *watch) isFar() bool { return w.target != [nearPlaces]string{} }

// watchedState returns the state that the watch keeps up to date, or nil if a step has to read the state.
func (e *entry) watchedState(l *link) *state {
	w := e.watch
	if w == nil || w.link != l {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil || w.moved || w.state == nil {
		return nil
	}
	return w.state.clone()
}

// hasNoNews reports whether the entry watches the waiters directly before it, and none of these keys, nor its own,
// has been deleted since.
func (e *entry) hasNoNews(l *link) bool {
	w := e.watch
	if w == nil || w.link != l || !w.isFar() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err == nil && !w.moved
}

// stopWatch ends the watch, so that the next step reads the state.
func (e *entry) stopWatch() {
	if e.watch != nil {
		e.watch.end()
		e.watch = nil
	}
}

// ensureWatch watches the keys whose change may mean that it is the entry's turn. before are the keys of the
// waiters directly before it: any of them may leave first, because an absent waiter is passed over. If the
// entry watches the same keys already, that watch goes on.
func (e *entry) ensureWatch(l *link, s *state, place int, before [nearPlaces]string) {
	e.place = place
	isFar := place > nearPlaces
	if e.watch == nil || e.watch.link != l {
		e.record.Age = 0 // the age that a cluster restored from a backup has is not known
	}
	if w := e.watch; w != nil && w.link == l && w.target == before {
		w.mu.Lock()
		isUpToDate := isFar || w.state != nil && w.state.revision >= s.revision
		goesOn := w.err == nil && !w.moved && isUpToDate
		w.mu.Unlock()
		if goesOn {
			return
		}
	}
	e.stopWatch()
	ctx, end := context.WithCancel(e.open)
	w := &watch{link: l, end: end, target: before}
	var wanted []byte
	if isFar {
		for _, key := range append(before[:], e.key) {
			wanted = append(wanted, frameMessage(watchFrom(span{from: key}, s.revision+1, onlyDeletions))...)
		}
	} else {
		w.state = s.clone()
		wanted = frameMessage(watchFrom(e.all(), s.revision+1, allEvents))
	}
	e.watch = w
	var err error
	w.stream, err = l.beginFramed("Watch/Watch", wanted, moreFollow)
	if err != nil {
		w.err = err
		tell(e.wake)
		return
	}
	go w.run(ctx, e)
}

// run reads the news until the watch ends.
func (w *watch) run(ctx context.Context, e *entry) {
	var err error
	defer w.stream.close()
	defer func() {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		if ctx.Err() == nil {
			tell(e.wake)
		}
	}()
	defer locks.Recover(&err)
	for {
		var n news
		n, err = w.stream.news(ctx)
		if err != nil {
			return
		}
		shouldLook := w.note(&n, e.id)
		if shouldLook {
			tell(e.wake)
		}
	}
}

// news waits for the next news of a watch.
func (s *stream) news(ctx context.Context) (n news, err error) {
	text, err := s.await(ctx)
	if err == nil {
		err = n.read(text)
	}
	if err == nil && n.canceled {
		err = network.Damaged("the watch was ended: %s, compacted up to %d", locks.Printable(n.reason, 100), n.compacted)
	}
	return n, err
}

// note brings the watch up to date with news. It reports whether the waiter with that ID should look.
func (w *watch) note(n *news, id string) (shouldLook bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		w.moved = w.moved || len(n.events) > 0
		return w.moved
	}
	s := w.state
	caller, _ := s.find(id)
	concerns := func(key string) bool {
		e, isWaiter := s.waiters[key]
		return isWaiter && (e.ID == id || compareWaiters(e, caller) < 0)
	}
	for i := range n.events {
		one := &n.events[i]
		if !s.isOfEntry(one.key) { // look does not read such a key either
			continue
		}
		isWaiter := strings.HasPrefix(one.key, s.lock+waiterPart)
		shouldLook = shouldLook || !isWaiter || concerns(one.key)
		if one.deleted {
			s.remove(one.key)
		} else {
			s.put(&one.pair)
		}
		shouldLook = shouldLook || concerns(one.key)
		s.revision = max(s.revision, one.changed)
	}
	return shouldLook
}

// tell sends to a channel with room for one value, unless a value is pending.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep implements lease.Entry. It returns when something has happened that may concern the waiter.
func (e *entry) Sleep(ctx context.Context, nap queue.Nap, _ func()) (a lease.Answer, sent locks.Instant, _ error) {
	timer := time.NewTimer(nap.For)
	defer timer.Stop()
	select {
	case <-e.wake:
	case <-timer.C:
		return a, 0, nil
	case <-ctx.Done():
		return a, 0, nil
	}
	if e.hasLostMember() { // all waiters of that member come back at the same time
		lease.Pause(ctx, rand.N(reconnectSpread))
	}
	return a, 0, nil
}

// reconnectSpread is the time over which the waiters that have lost their member spread their new connections.
const reconnectSpread = 300 * time.Millisecond

// hasLostMember reports whether the connection of the watch has ended.
func (e *entry) hasLostMember() bool {
	select {
	case e.using <- struct{}{}:
		defer func() { <-e.using }()
	default:
		return false
	}
	return e.watch != nil && e.watch.link.failure() != nil
}

// listenDelay is the time before a holder watches its key. Most short commands have ended by then.
const listenDelay = 100 * time.Millisecond

// Events implements lease.Entry. The first call starts to watch the holder's key.
func (e *entry) Events() <-chan struct{} {
	e.watching.Do(func() {
		go func() {
			defer locks.Recover(new(error)) // a renewal meets the same fault, and reports it
			for pause := listenDelay; e.open.Err() == nil; pause = time.Second {
				lease.Pause(e.open, pause)
				shouldRenew := e.watchHolder()
				if shouldRenew {
					tell(e.events) // the entry may have lost more than the watch
				}
			}
		}()
	})
	return e.events
}

// watchHolder watches the holder's key until the watch ends. It reports whether the holder should renew: the
// watch has ended, or the entry is lost or evicted. It reports false if it could not begin to watch.
func (e *entry) watchHolder() (shouldRenew bool) {
	ctx, cancel := context.WithTimeout(e.open, lease.LongestAttempt)
	defer cancel()
	l, err := e.store.client.current(ctx, nil)
	if err != nil {
		return false
	}
	stored, o, err := e.holderNow(ctx, l)
	if err != nil {
		return false
	}
	if stored == nil || stored.isEvicted() {
		return true
	}
	s, err := l.begin("Watch/Watch", watchFrom(span{from: stored.key}, o.revision+1, allEvents), moreFollow)
	if err != nil {
		return false
	}
	defer s.close()
	for {
		n, err := s.news(e.open)
		if err != nil {
			return true
		}
		for i := range n.events {
			if one := &n.events[i]; one.deleted || one.isEvicted() {
				tell(e.events)
			}
		}
	}
}
