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

// leaseState is what a renewer said before a step.
type leaseState struct {
	term locks.Term
	lost bool
}

// step reads the clock and the store's answers, and sends what is due.
func (r *renewer) step() (before leaseState) {
	if r != nil {
		before = leaseState{r.Term, r.Lost != nil}
		r.Step()
	}
	return before
}

// keepLease does what follows from a step.
func (s *supervisor) keepLease(before leaseState) {
	r := s.renewer
	if r == nil {
		return
	}
	switch {
	case s.reason.tree: // the command is being ended
	case isEviction(r.Lost): // is no accident, of which a warning would do
		s.loseLease(fmt.Errorf("the slot was taken back: %w", r.Lost))
	case s.OnlyWarn:
		if r.Lost != nil && !before.lost {
			s.Log(true, "the slot is lost, the command goes on", "error", r.Lost)
		}
	case r.Lost != nil:
		s.loseLease(r.Lost)
	case r.Term != before.term:
		s.watchdog.send(message{kind: msgDeadline, number: int64(r.KillAt())})
	}
	at := r.WakeAt()
	if s.state == stopping && s.leaseKillAt != 0 {
		if s.clock() >= s.leaseKillAt {
			s.kill()
		} else if at == 0 || s.leaseKillAt < at {
			at = s.leaseKillAt
		}
	}
	r.timer.set(at)
}

// loseLease ends the command and all its descendants because the slot is lost or soon will be.
func (s *supervisor) loseLease(err error) {
	s.Log(false, "slot lost", "error", err)
	s.because(leaseLost, err)
	s.status.markLost()
	now, window := s.clock(), s.renewer.Window()
	if isEviction(err) {
		window = s.KillAfter
	}
	s.leaseKillAt = min(s.renewer.KillAt(), now.Add(window))
	s.watchdog.send(message{kind: msgDeadline, number: int64(s.leaseKillAt)})
	s.stop(s.leaseKillAt.Sub(now))
}

// killUnguarded kills the command and all its descendants because the watchdog is gone: if golock were
// stopped now, nobody would end them in time.
func (s *supervisor) killUnguarded() {
	s.because(fault, fmt.Errorf("%w: the command was stopped", errWatchdogGone))
	s.status.markLost()
	s.kill()
}
