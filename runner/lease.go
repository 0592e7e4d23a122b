package runner

import (
	"fmt"
	"time"

	"golock/locks"
	"golock/runner/renewal"
	"golock/signals"
)

// What a supervisor does about a lease: it renews it, tells the watchdog the deadline, and ends the
// command when the slot is lost.

// renewer is a Renewer with the timer that wakes the relay for it.
type renewer struct {
	*renewal.Renewer
	timer *bootTimer
	relay *signals.Relay
}

func (r *Run) startRenewer(lease locks.RenewableLease, killAfter time.Duration) (*renewer, error) {
	timer, err := newBootTimer()
	if err != nil {
		return nil, err
	}
	r.Relay.Watch(timer.fd)
	return &renewer{renewal.New(lease, locks.BootTime, killAfter, r.Relay.Wake, r.Log), timer, r.Relay}, nil
}

// renewSoon may be called from any goroutine, and where there is no lease to renew.
func (r *renewer) renewSoon() {
	if r != nil {
		r.RenewSoon()
	}
}

func (r *renewer) stop() {
	if r != nil {
		r.relay.Unwatch(r.timer.fd)
		r.Stop()
		r.timer.close()
	}
}

// keepLease acts on what the renewer's last step has shown, and sets its timer.
func (s *supervisor) keepLease() {
	r := s.renewer
	if r == nil {
		return
	}
	lost := r.Lost != nil
	switch {
	case s.reason.grave(): // the command is being ended
	case isA[*locks.EvictedError](r.Lost): // on purpose: more than a warning, also with OnlyWarn
		s.loseLease(takenBack(r.Lost))
	case lost && !s.OnlyWarn:
		s.loseLease(r.Lost)
	case lost && !s.warned:
		s.Log(true, "the slot is lost, the command goes on", "error", r.Lost)
	case r.Term != s.term:
		s.watchdog.send(message{kind: msgDeadline, number: int64(r.KillAt())})
	}
	s.term, s.warned = r.Term, lost
	at := r.WakeAt()
	if s.killAt != 0 && (at == 0 || s.killAt < at) {
		at = s.killAt
	}
	r.timer.set(at)
}

// loseLease ends the command and all its descendants because the slot is lost or soon will be.
func (s *supervisor) loseLease(err error) {
	s.Log(false, "slot lost", "error", err)
	s.because(leaseLost, err)
	s.status.markLost()
	now, window := s.clock(), s.renewer.Window
	if isA[*locks.EvictedError](err) {
		window = s.KillAfter
	}
	left := min(window, s.renewer.KillAt().Sub(now))
	s.watchdog.send(message{kind: msgDeadline, number: int64(now.Add(left))})
	s.stop(left)
}

// failClosed kills the command and all its descendants because the watchdog is gone: if golock were
// stopped now, nobody would end them in time.
func (s *supervisor) failClosed() {
	s.because(fault, fmt.Errorf("%w: the command was stopped", errWatchdogGone))
	s.status.markLost()
	s.kill()
}
