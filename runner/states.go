package runner

import "fmt"

// state is how far a run is. docs/runner-states.md has the diagram.
type state int

const (
	starting state = iota // the command: waits for the slot before
	running               // the command runs, or with Run.Tree a descendant
	stopping              // the stop signal is sent, KILL follows
	killing               // KILL is sent, again until nothing is left
	ended                 // nothing of the command runs any more
)

func (s state) String() string {
	return [...]string{"starting", "running", "stopping", "killing", "ended"}[s]
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

// severity orders the reasons for which golock ends a command.
type severity int

const (
	noReason  severity = iota
	requested          // told to stop by a signal; with Run.Tree it also stops what the command left running
	severe             // the time limit, or evicted from a store without leases
	grave              // the lease is lost, or a fault: every descendant is ended, whatever Run.Tree says
)

// reason is why golock ends a command, and what the run's outcome is then.
type reason struct {
	severity severity
	kind     Kind
	err      error
}

// wholeTree reports whether the run lasts until every descendant of the command has ended.
func (s *supervisor) wholeTree() bool { return s.Tree || s.reason.severity == grave }

// because records a reason and reports whether it counts. A more severe one replaces a less severe
// one; of two that are equally severe the first counts. From a grave one on the slot counts as lost.
func (s *supervisor) because(severity severity, kind Kind, err error) bool {
	if severity <= s.reason.severity {
		return false
	}
	s.reason = reason{severity: severity, kind: kind, err: err}
	if severity == grave {
		s.status.markLost()
	}
	return true
}
