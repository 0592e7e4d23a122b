package memory

import (
	"time"

	"golock/locks/queue"
)

// Faults is what goes wrong on the way to a table and back. A field that is nil does no harm. The table calls the
// functions one at a time.
type Faults struct {
	// Delay returns how long a request or an answer travels. A request may arrive after its sender has given up.
	Delay func() time.Duration

	// Lose says what becomes of a request.
	Lose func(Trip) Fate

	// LoseWakeUp reports whether a wake-up gets lost.
	LoseWakeUp func() bool

	// Decide takes the place of queue.Decide: a test breaks a rule with it.
	Decide func(queue.View, queue.Question) queue.Decision
}

// Trip is what a request is about. The Step is empty if the request is about no single entry.
type Trip struct {
	Step     queue.Step
	Replaces bool // the entry replaces others; only the first answer to its Join names them
}

// Fate is what becomes of a request.
type Fate int

// The fates.
const (
	Arrive Fate = iota
	LoseRequest
	LoseAnswer // the request has its effect, and its sender does not know
)

func (f *Faults) fate(t Trip) Fate {
	if f.Lose == nil {
		return Arrive
	}
	return f.Lose(t)
}

func (f *Faults) delay() time.Duration {
	if f.Delay == nil {
		return time.Millisecond
	}
	return f.Delay()
}

func (f *Faults) losesWakeUp() bool { return f.LoseWakeUp != nil && f.LoseWakeUp() }

func (f *Faults) decide(v queue.View, q queue.Question) queue.Decision {
	if f.Decide == nil {
		return queue.Decide(v, q)
	}
	return f.Decide(v, q)
}
