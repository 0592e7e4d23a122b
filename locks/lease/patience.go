package lease

import (
	"context"
	"sync"
	"time"

	"golock/locks"
)

// patience limits how long a request is repeated that is not in the queue yet and gets no answer. A
// store that has not been reached is given up after JoinLimits.Reach. A server on another host that has
// taken a connection has FirstAnswer for its first answer. A store that refuses for a temporary reason has
// JoinLimits.Refusals, from the first refusal on. A store that has answered otherwise can be reached, so it
// is asked for JoinLimits.Total.
type patience struct {
	attempts context.Context // the context of each attempt: an attempt may go on after the time to begin one is over
	end      func()          // ends the time in which attempts may begin
	refusals time.Duration   // 0 if refusals have no limit
	slowdown func() float64  // JoinLimits.Slowdown, or a function that returns 1

	mu           sync.Mutex    // guards what follows
	timer        *time.Timer   // fires after the next part of the time; nil while there is no limit
	left         time.Duration // after this time without an answer, or with refusals only, the request ends
	hasConnected bool
	hasRefused   bool
}

// noLimit is the patience of a request that only its context limits.
var noLimit *patience

// reachPart is the length of a part in which time is counted. If the timer of a part fires late, it counts
// as one part only: among hundreds of processes that start together this one may not run for seconds, and
// the store may have answered meanwhile. A server on this machine is as slow as this process. So a part counts
// less, by the factor that JoinLimits.Slowdown returns at the end of the part.
const reachPart = 100 * time.Millisecond

// FirstAnswer is the time that a server on another host has for its first answer after it has taken a
// connection. golock cannot tell a server that is stopped from one that a crowd of hosts keeps busy.
const FirstAnswer = 30 * time.Second

// newPatience returns the patience of a request. bounded ends when no further attempt may begin.
func newPatience(ctx context.Context, limits locks.JoinLimits) (p *patience, bounded context.Context, stop func()) {
	attempts, endAttempts := context.WithCancel(ctx)
	limited, endLimit := attempts, func() {}
	if limits.Total > 0 {
		limited, endLimit = context.WithTimeout(attempts, limits.Total)
	}
	bounded, cancel := context.WithCancel(limited)
	p = &patience{
		attempts: bounded, end: cancel, refusals: limits.Refusals, slowdown: limits.Slowdown, left: limits.Reach,
	}
	if p.slowdown == nil {
		p.slowdown = func() float64 { return 1 }
	}
	if limits.LeastAnswer > 0 {
		p.attempts = attempts
		go func() {
			defer endAttempts()
			p.pauseInParts(attempts, limits.LeastAnswer)
			<-bounded.Done()
		}()
	}
	if limits.Reach > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count()
	}
	return p, bounded, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stop()
		cancel()
		endLimit()
		endAttempts()
	}
}

// pauseInParts sleeps until ctx ends, or for d, which it counts in parts.
func (p *patience) pauseInParts(ctx context.Context, d time.Duration) {
	for d > 0 && ctx.Err() == nil {
		Pause(ctx, min(reachPart, d))
		d -= p.part()
	}
}

// part returns how much time a part counts that is over now.
func (p *patience) part() time.Duration { return time.Duration(float64(reachPart) / p.slowdown()) }

// contextOfAttempt returns the context of an attempt. ctx is the context of the request.
func (p *patience) contextOfAttempt(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return p.attempts
}

// count begins to count the time that is left. The caller has locked mu.
func (p *patience) count() { p.timer = time.AfterFunc(min(reachPart, p.left), p.partIsOver) }

// stop ends the counting. The caller has locked mu.
func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// partIsOver counts a part of the time without an answer.
func (p *patience) partIsOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	p.left -= p.part()
	if p.left <= 0 {
		p.end()
		return
	}
	p.timer.Reset(min(reachPart, p.left))
}

// connected notes that a server on another host has taken a connection. Only the first call counts.
func (p *patience) connected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasConnected && !p.hasRefused {
		p.hasConnected = true
		p.left = max(p.left, FirstAnswer)
	}
}

// refused notes that the store refuses for a temporary reason.
func (p *patience) refused() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	isFirst := !p.hasRefused
	p.hasRefused = true
	if p.refusals == 0 {
		p.stop()
		return
	}
	if isFirst {
		p.left = p.refusals
	}
	if p.timer == nil {
		p.count()
	}
}

// answered notes that the store has answered. After a refusal it does not stop the time: a server may
// accept each attempt and refuse it later.
func (p *patience) answered() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasRefused || p.refusals == 0 {
		p.stop()
	}
}
