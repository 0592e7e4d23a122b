package lease

import (
	"context"
	"math"
	"sync"
	"time"

	"golock/locks"
)

// patience bounds how long a request is repeated that is not in the queue yet. A store that has not
// answered at all is given up after Request.Reach. One that has answered is there: it is asked until
// Request.Refusals is over, or ctx ends. A nil patience has no limit.
type patience struct {
	refusals time.Duration
	reach    *time.Timer // ends the attempts; nil: it never does

	mu           sync.Mutex // guards what follows
	hasConnected bool
	hasAnswered  bool
	end          time.Time // when the last attempt begins; zero: there is no limit yet
}

// newPatience gives the patience of a request. Its ctx ends when the store has not answered in time.
func newPatience(ctx context.Context, r *locks.Request) (p *patience, bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancel(ctx)
	p = &patience{refusals: r.Refusals}
	if r.Reach > 0 {
		p.reach = time.AfterFunc(r.Reach, cancel)
	}
	return p, bounded, func() {
		p.stopReach()
		cancel()
	}
}

func (p *patience) stopReach() {
	if p.reach != nil {
		p.reach.Stop()
	}
}

// connected notes that the server has taken a connection. In a crowd its first answer may take long.
func (p *patience) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasAnswered && !p.hasConnected && p.refusals > 0 && p.reach != nil && p.reach.Stop() {
		p.hasConnected = true
		p.reach.Reset(p.refusals)
	}
}

// answered notes that the store is there. The first time counts.
func (p *patience) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasAnswered {
		return
	}
	p.hasAnswered = true
	p.stopReach()
	if p.refusals > 0 {
		p.end = time.Now().Add(p.refusals)
		if p.reach != nil {
			p.reach.Reset(p.refusals + ShortAttempt) // the attempt that is under way may end
		}
	}
}

// left is how long attempts may still begin.
func (p *patience) left() time.Duration {
	if p == nil {
		return math.MaxInt64
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end.IsZero() {
		return math.MaxInt64
	}
	return time.Until(p.end)
}
