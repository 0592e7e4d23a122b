package runner

import "fmt"

// state is the stage of a run. docs/runner-states.md has the diagram.
type state int

const (
	starting state = iota // golock waits for the slot, then starts the command
	running               // the command runs, or with Run.Tree a descendant of it
	stopping              // the stop signal was sent, and KILL follows
	killing               // KILL was sent, and is sent again until no process is left
	ended                 // no process of the command is left
)

func (s state) String() string {
	return [...]string{"starting", "running", "stopping", "killing", "ended"}[s]
}

// enter changes the state. A run never returns to an earlier state: that would be a bug.
func (s *supervisor) enter(to state) {
	if to <= s.state {
		panic(fmt.Sprintf("a run cannot go from %v to %v", s.state, to))
	}
	if s.onTransition != nil {
		s.onTransition(s.state, to)
	}
	s.state = to
}

// severity orders the reasons why golock ends a command.
type severity int

const (
	noReason  severity = iota
	requested          // a signal told golock to stop; with Run.Tree it also ends what the command left running
	severe             // the time limit was reached, or the run was evicted on a store without leases
	grave              // the lease is lost, or golock has a fault; every descendant is ended, whatever Run.Tree says
)

// reason says why golock ends a command, and gives the run's outcome for that case.
type reason struct {
	severity severity
	kind     Kind
	err      error
}

// wholeTree reports whether the run lasts until every descendant of the command has ended.
func (s *supervisor) wholeTree() bool { return s.Tree || s.reason.severity == grave }

// recordReason records a reason and reports whether it counts. A more severe reason replaces a less
// severe one. Of two reasons that are equally severe, the first counts. With a grave reason the slot
// counts as lost.
func (s *supervisor) recordReason(severity severity, kind Kind, err error) bool {
	if severity <= s.reason.severity {
		return false
	}
	s.reason = reason{severity: severity, kind: kind, err: err}
	if severity == grave {
		s.status.markLost()
	}
	return true
}
