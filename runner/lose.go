package runner

import (
	"golock/locks"
)

// What a supervisor does about a lease: it attends to the keeper at every
// wake-up, tells the guard the deadline, and ends the command when the slot is
// lost.

// keepAlive begins to keep the lease.
func (s *supervisor) keepAlive(lease locks.Leased) error {
	t, err := newTicker()
	if err != nil {
		return err
	}
	killAfter := s.KillAfter
	if s.OnlyWarn {
		killAfter = 0 // nobody is told to stop
	}
	s.ticker, s.keep = t, newKeeper(lease, locks.BootTime, killAfter, s.Relay.Wake, s.Log)
	return nil
}

// listen lets what keeper and guard have to say wake the relay.
func (s *supervisor) listen() {
	if s.keep != nil {
		s.Relay.Watch(s.ticker.fd)
	}
	if s.guard != nil {
		s.Relay.Watch(s.guard.socket)
	}
}

// letGo ends both.
func (s *supervisor) letGo() {
	s.keep.end()
	s.Relay.Unwatch(s.ticker.fd)
	s.ticker.close()
	if s.guard != nil {
		s.Relay.Unwatch(s.guard.socket)
	}
}

// attend does what is due for the lease.
func (s *supervisor) attend() {
	k := s.keep
	if k == nil {
		return
	}
	before := k.term
	k.attend()
	switch {
	case s.lost != nil || s.broken != nil: // the command is being ended
	case evicted(k.lost): // is no accident, of which to warn would do
		s.lose(takenBack(k.lost))
	case s.OnlyWarn:
		if k.lost != nil && !s.warned {
			s.Log(true, "the slot is lost, the command goes on", "error", k.lost)
		}
		s.warned = k.lost != nil
	case k.lost != nil:
		s.lose(k.lost)
	case k.term != before:
		s.guard.tell(message{kind: toDeadline, number: int64(k.killAt())})
	}
	at := k.wakeAt()
	if s.lost != nil && !s.killing {
		if k.clock() >= s.killAt {
			s.kill()
		} else if at == 0 || s.killAt < at {
			at = s.killAt
		}
	}
	s.ticker.set(at)
}

// hintLost has the lease renewed at once: somebody was told that it is lost.
func (s *supervisor) hintLost() {
	if s.keep != nil {
		s.keep.hintFrom(locks.Unsure)
	}
}

// lose ends the command, with all that descends from it, because the slot is
// lost or soon will be.
func (s *supervisor) lose(why error) {
	s.Log(false, "slot lost", "error", why)
	s.lost, s.wide = why, true
	s.desk.shut()
	now, window := s.keep.clock(), s.keep.window
	if evicted(why) {
		window = s.KillAfter
	}
	s.killAt = min(s.keep.killAt(), now.Add(window))
	s.guard.tell(message{kind: toDeadline, number: int64(s.killAt)})
	s.end(s.killAt.Sub(now))
}

// unguarded ends the command, with all that descends from it, because nobody
// would if golock were stopped now.
func (s *supervisor) unguarded(why error) {
	if s.lost == nil && s.broken == nil {
		s.broken = why
	}
	s.desk.shut()
	s.wide, s.ending = true, true
	becomeSubreaper()
	s.kill()
}
