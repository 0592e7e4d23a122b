package memory

import (
	"time"

	"golock/locks/queue"
)

// Faults is what goes wrong on the way to a table and back. A field that is nil causes no fault. The table calls the
// functions one at a time. The question of a request that concerns no single entry has no Step.
type Faults struct {
	// Delay returns how long a request or an answer travels. A request may arrive after its sender has given up.
	Delay func(queue.Question) time.Duration

	// Lose says what becomes of a request.
	Lose func(queue.Question) Fate

	// LoseWakeUp reports whether a wake-up gets lost.
	LoseWakeUp func() bool

	// Decide takes the place of queue.Decide: a test breaks a rule with it.
	Decide func(queue.View, queue.Question) queue.Decision
}

// Fate is what becomes of a request.
type Fate int

// The fates.
const (
	Arrive Fate = iota
	LoseRequest
	LoseAnswer // the request has its effect, and its sender does not know
)

func (f *Faults) fate(q queue.Question) Fate {
	if f.Lose == nil {
		return Arrive
	}
	return f.Lose(q)
}

func (f *Faults) delay(q queue.Question) time.Duration {
	if f.Delay == nil {
		return time.Millisecond
	}
	return f.Delay(q)
}

func (f *Faults) losesWakeUp() bool { return f.LoseWakeUp != nil && f.LoseWakeUp() }

func (f *Faults) decide(v queue.View, q queue.Question) queue.Decision {
	if f.Decide == nil {
		return queue.Decide(v, q)
	}
	return f.Decide(v, q)
}
