package runner

import (
	"fmt"
	"syscall"
)

// state is how far a run is. docs/runner-states.md has the diagram.
type state int

const (
	waiting  state = iota // for the slot
	starting              // has the slot, prepares and starts the command
	running               // the command runs
	draining              // the command has ended, its descendants have not (Run.Tree)
	stopping              // the stop signal is sent, KILL follows
	killing               // KILL is sent, again until nothing is left
	ended                 // nothing of the command runs
	released              // the slot is given back, or there was none
)

func (s state) String() string {
	return [...]string{"waiting", "starting", "running", "draining", "stopping", "killing", "ended", "released"}[s]
}

// enter changes the state. A run never goes back: that would be a fault of golock's own.
func (s *supervisor) enter(to state) {
	if to <= s.state {
		panic(fmt.Sprintf("a run cannot go from %v to %v", s.state, to))
	}
	if s.onTransition != nil {
		s.onTransition(s.state, to)
	}
	s.state = to
}

// cause is why golock ends a command.
type cause int

const (
	noCause       cause = iota
	stopRequested       // by a signal; with Run.Tree it also stops what the command left running
	timeLimit
	evicted   // from a store without leases
	leaseLost // or evicted from a store with leases
	fault
)

// reason is a cause and its error.
type reason struct {
	cause cause
	err   error
}

// grave reports whether every descendant of the command is ended, whatever Run.Tree says.
func (r reason) grave() bool { return r.cause >= leaseLost }

// wholeTree reports whether the run lasts until every descendant of the command has ended.
func (s *supervisor) wholeTree() bool { return s.Tree || s.reason.grave() }

// because records a reason and reports whether it counts. A graver cause replaces a lesser one; of
// two that are equally grave the first counts. From a grave one on the slot counts as lost.
func (s *supervisor) because(c cause, err error) bool {
	gravity := [...]int{noCause: 0, stopRequested: 1, timeLimit: 2, evicted: 2, leaseLost: 3, fault: 3}
	if gravity[c] <= gravity[s.reason.cause] {
		return false
	}
	s.reason = reason{cause: c, err: err}
	if s.reason.grave() {
		s.status.markLost()
	}
	return true
}

// outcome is that of a command that has ended with status.
func (r reason) outcome(status syscall.WaitStatus) *Outcome {
	switch r.cause {
	case timeLimit:
		return &Outcome{Kind: TimedOut, Status: status, Err: r.err}
	case evicted, leaseLost:
		return &Outcome{Kind: Lost, Status: status, Err: r.err}
	case fault:
		return &Outcome{Kind: Fault, Err: r.err}
	}
	return &Outcome{Kind: Ended, Status: status}
}
