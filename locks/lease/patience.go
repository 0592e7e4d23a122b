package lease

import (
	"context"
	"sync"
	"time"

	"golock/locks"
)

// patience bounds how long a request is repeated that is not in the queue yet and gets no answer. A store
// that has not been reached is given up after Request.Reach. One that has taken a connection has
// NewcomerAttempt for its first answer. One that has answered is asked until ctx ends: it is there. A
// nil patience has no limit.
type patience struct {
	mu           sync.Mutex  // guards what follows
	reach        *time.Timer // ends the attempts; nil: it never does
	hasConnected bool
}

// newPatience gives the patience of a request. Its ctx ends when the store has not answered in time.
func newPatience(ctx context.Context, r *locks.Request) (p *patience, bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancel(ctx)
	p = &patience{}
	if r.Reach > 0 {
		p.reach = time.AfterFunc(r.Reach, cancel)
	}
	return p, bounded, func() {
		p.answered()
		cancel()
	}
}

// connected notes that the server has taken a connection. The first time counts. In a crowd the first answer may
// take long; a server that is stopped never gives one.
func (p *patience) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasConnected || p.reach == nil {
		return
	}
	p.hasConnected = true
	isWaiting := p.reach.Stop()
	if isWaiting {
		p.reach.Reset(NewcomerAttempt)
	}
}

// answered notes that the store is there.
func (p *patience) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach != nil {
		p.reach.Stop()
		p.reach = nil
	}
}
