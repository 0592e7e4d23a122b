package report

import (
	"fmt"

	"golock/locks"
)

// Kind says what became of a run, as far as people tell runs apart.
type Kind string

// The kinds of runs.
const (
	OK          Kind = "ok"          // the command ran, and the exit code is 0
	Failed      Kind = "failed"      // the exit code is not 0, for another reason than those below
	TimeLimit   Kind = "time limit"  // golock ended the command
	Lost        Kind = "lost"        // the slot was lost or taken back while the command ran
	Skipped     Kind = "skipped"     // no slot in time
	Interrupted Kind = "interrupted" // a signal ended the waiting
	Unavailable Kind = "unavailable" // the store could not be asked
	Unlocked    Kind = "unlocked"    // the command ran without a slot, and the exit code is 0
)

// Kind returns the kind of a run.
func (l *Line) Kind() Kind {
	switch {
	case l.Outcome == busy:
		return Skipped
	case l.Outcome == OutcomeUnavailable:
		return Unavailable
	case l.Outcome == lost:
		return Lost
	case l.Outcome == timeLimit:
		return TimeLimit
	case l.Outcome == interrupted:
		return Interrupted
	case l.ExitCode != 0:
		return Failed
	case l.WithoutSlot():
		return Unlocked
	}
	return OK
}

// WithoutSlot reports whether the command ran without a slot, as --on-unavailable run allows.
func (l *Line) WithoutSlot() bool { return l.Unlocked || l.Outcome == OutcomeUnlocked }

// isFailure reports whether the column FAILED counts the run. Other columns count runs that were
// skipped, lost their slot, or had no store.
func (l *Line) isFailure() bool {
	switch l.Kind() {
	case Failed, TimeLimit:
		return true
	case Interrupted:
		return l.ExitCode != 0
	}
	return false
}

// Result says in a few words what became of a run.
func (l *Line) Result() string {
	switch l.Kind() {
	case Failed:
		return l.failure()
	case Lost:
		return "slot lost"
	case Interrupted:
		return "stopped by " + locks.Printable(l.Signal, 10) + " while waiting"
	case Unavailable:
		return "store unavailable"
	case Unlocked:
		return "ok, without a slot"
	}
	return string(l.Kind())
}

// failure says why the exit code is not 0.
func (l *Line) failure() string {
	switch {
	case l.Outcome != ended && l.Outcome != OutcomeUnlocked:
		return fmt.Sprintf("%s (%d)", locks.Printable(l.Outcome, 20), l.ExitCode)
	case l.Signal != "":
		return "killed by " + locks.Printable(l.Signal, 10)
	}
	return fmt.Sprintf("exit code %d", l.ExitCode)
}

// Span writes a time in seconds for people.
func Span(seconds float64) string {
	s := int64(min(max(seconds, 0), longestSpan))
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	switch {
	case seconds < 0.05:
		return "0s"
	case seconds < 10:
		return fmt.Sprintf("%.1fs", seconds)
	case s < minute:
		return fmt.Sprintf("%ds", s)
	case s < hour:
		return fmt.Sprintf("%dm%02ds", s/minute, s%minute)
	case s < day:
		return fmt.Sprintf("%dh%02dm", s/hour, s%hour/minute)
	}
	return fmt.Sprintf("%dd%02dh", s/day, s%day/hour)
}

// longestSpan bounds times that somebody else has written into a report, in seconds: 100 years.
const longestSpan = 100 * 365 * 24 * 60 * 60
