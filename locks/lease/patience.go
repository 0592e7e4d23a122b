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
	end func()

	mu           sync.Mutex    // guards what follows
	timer        *time.Timer   // for the next part of the time; nil: there is no limit, or no longer
	left         time.Duration // without an answer
	hasConnected bool
}

// reachPart is the part of the time without an answer that is counted at once. Among hundreds of processes that
// were started at the same moment this one may not run for seconds, although the store has answered long ago.
// So a longer time between two moments at which it runs counts as one part.
const reachPart = 100 * time.Millisecond

// newPatience gives the patience of a request. Its ctx ends when the store has not answered in time.
func newPatience(ctx context.Context, r *locks.Request) (p *patience, bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancel(ctx)
	p = &patience{end: cancel, left: r.Reach}
	if r.Reach > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer = time.AfterFunc(min(reachPart, p.left), p.partIsOver)
	}
	return p, bounded, func() {
		p.answered()
		cancel()
	}
}

// partIsOver counts a part of the time without an answer.
func (p *patience) partIsOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	p.left -= reachPart
	if p.left <= 0 {
		p.end()
		return
	}
	p.timer.Reset(min(reachPart, p.left))
}

// connected notes that the server has taken a connection. The first time counts. In a crowd the first answer may
// take long; a server that is stopped never gives one.
func (p *patience) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasConnected {
		p.hasConnected = true
		p.left = max(p.left, NewcomerAttempt)
	}
}

// answered notes that the store is there.
func (p *patience) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
