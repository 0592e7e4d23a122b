package runner

import (
	"errors"
	"fmt"

	"golock/locks"
)

// What a supervisor does about a lease: it renews it, tells the watchdog the deadline, and ends the
// command when the slot is lost.

// keepLease acts on what the renewer's last step has shown.
func (s *supervisor) keepLease() {
	r := s.renewer
	if r == nil {
		return
	}
	lost := r.Lost != nil
	switch {
	case s.reason.severity == grave: // the command is being ended
	case errors.As(r.Lost, new(*locks.EvictedError)): // on purpose: more than a warning, also with OnlyWarn
		s.loseLease(takenBack(r.Lost))
	case lost && !s.OnlyWarn:
		s.loseLease(r.Lost)
	case lost && !s.warned:
		s.Log(true, "the slot is lost, the command goes on", "error", r.Lost)
	case r.Term != s.term:
		s.watchdog.send(msgDeadline, int64(r.KillAt()))
	}
	s.term, s.warned = r.Term, lost
}

// loseLease ends the command and all its descendants because the slot is lost or soon will be.
func (s *supervisor) loseLease(err error) {
	s.Log(false, "slot lost", "error", err)
	s.because(grave, Lost, err)
	now, window := s.clock(), s.renewer.Window
	if errors.As(err, new(*locks.EvictedError)) {
		window = s.KillAfter
	}
	left := min(window, s.renewer.KillAt().Sub(now))
	s.watchdog.send(msgDeadline, int64(now.Add(left)))
	s.stop(left)
}

// failClosed kills the command and all its descendants because the watchdog is gone: if golock were
// stopped now, nobody would end them in time.
func (s *supervisor) failClosed() {
	s.because(grave, Fault, fmt.Errorf("%w: the command was stopped", errWatchdogGone))
	s.kill()
}
