package runner

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/internal/proctree"
	"golock/locks"
	"golock/runner/renewal"
	"golock/signals"
)

// supervisor is one run under way. Its state belongs to the goroutine that called Run.Do.
type supervisor struct {
	*Run
	state  state
	reason reason
	out    *Outcome // nil: not known yet

	cmd      *command
	watchdog *watchdog        // nil: none
	status   *statusServer    // nil: none
	lease    locks.Lease      // nil: not granted
	renewer  *renewal.Renewer // nil: the lease needs none
	later    func()           // what the store does when the command has started; nil: nothing
	pending  []syscall.Signal

	preexisting []proctree.Process
	pid         int // of the command; 0: not started, or collected
	group       int // of the command
	exit        syscall.WaitStatus
	childless   bool // no child is left but preexisting ones
	signal      func(syscall.Signal)
	clock       locks.Clock
	unkillable  map[int]bool // processes that cannot be signalled

	term   locks.Term // whose deadline the watchdog knows
	warned bool       // of a lost slot, with OnlyWarn

	began, spawned time.Time
	waited, ran    time.Duration
	limitAt        locks.Instant // the time limit; 0: none, or reached
	killAt         locks.Instant // KILL after the stop signal; 0: none, or sent
}

// rescanPause is the time between two searches for processes that are not golock's children, while
// it ends a command whose first process is gone or was sent KILL.
const rescanPause = 20 * time.Millisecond

// supervise returns when the command has ended, and with Tree when all its descendants have.
func (s *supervisor) supervise() *Outcome {
	if s.TimeLimit > 0 {
		s.limitAt = s.in(s.TimeLimit)
	}
	for _, sig := range s.pending {
		s.deliver(sig)
	}
	for {
		if s.renewer != nil { // the clock first; a lost lease counts unless the command has ended
			s.renewer.Step()
		}
		if fault := s.status.failure(); fault != nil {
			panic(fault)
		}
		// CHLD may have come with the signals of the start, so look before waiting.
		s.collect()
		if s.finished() {
			s.enter(ended)
			return &Outcome{Kind: cmp.Or(s.reason.kind, Ended), Err: s.reason.err}
		}
		if s.state == running && s.pid == 0 && s.reason.severity == requested {
			s.stop(s.KillAfter)
		}
		s.keepLease()
		s.Relay.WakeAt(int64(s.wakeAt()))
		if sig, ok := s.Relay.Next(-1); ok && sig != 0 && sig != unix.SIGCHLD {
			s.onSignal(sig)
		}
		s.onTime() // also in a flood of signals
	}
}

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

// finished reports whether there is nothing left to wait for.
func (s *supervisor) finished() bool {
	switch {
	case s.pid != 0:
		return false
	case s.wholeTree():
		return s.childless
	case s.state >= stopping:
		return len(s.remaining()) == 0
	}
	return true
}

// in is that long from now.
func (s *supervisor) in(d time.Duration) locks.Instant {
	return s.clock().Add(min(d, math.MaxInt64/2)) // which is longer than anything runs
}

// wakeAt is when something is due; 0: never.
func (s *supervisor) wakeAt() (first locks.Instant) {
	due := []locks.Instant{s.limitAt, s.killAt}
	if s.renewer != nil {
		due = append(due, s.renewer.WakeAt())
	}
	if s.state == killing || s.state == stopping && s.pid == 0 { // KILL may have been refused
		due = append(due, s.in(rescanPause))
	}
	for _, at := range due {
		if at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// onTime does what is due.
func (s *supervisor) onTime() {
	now := s.clock()
	if s.limitAt != 0 && now >= s.limitAt {
		s.limitAt = 0
		s.Log(false, "time limit reached", "limit", s.TimeLimit)
		s.because(severe, TimedOut, fmt.Errorf("%q was stopped at its time limit of %v", s.Request.Name, s.TimeLimit))
		s.stop(s.KillAfter)
	}
	if s.state == killing || (s.killAt != 0 && now >= s.killAt) {
		s.kill()
	}
}

// raceWindow is how long after the start golock passes on also an INT, QUIT or HUP that the terminal
// sends to the whole job: the command may not have existed yet. Twice is better than not at all.
const raceWindow = time.Millisecond

// onSignal takes a signal that golock has received. With a terminal the kernel has sent some of them
// to the whole job, and so to the command.
func (s *supervisor) onSignal(sig syscall.Signal) {
	if sig == unix.SIGTERM {
		if err := s.lease.Evicted(); err != nil {
			if s.because(severe, Lost, takenBack(err)) { // else the signal was sent again
				s.Log(false, "slot taken back", "error", s.reason.err)
				s.stop(s.KillAfter)
			}
			return
		}
	}
	if signals.IsFault(sig) { // a program dies of it, and must not leave its command alone
		s.because(grave, Fault, fmt.Errorf("%w: the command was stopped", faultSent(sig)))
		s.stop(s.KillAfter)
		return
	}
	if !signals.Forwarded(sig) {
		return
	}
	if signals.AsksToStop(sig) && !s.Relay.Ignored(sig) {
		s.because(requested, Ended, nil)
	}
	if s.Terminal && signals.FromTerminal(sig) && !(sig == unix.SIGHUP && leadsSession()) {
		if sig == unix.SIGTSTP { // from the time of waiting, when it was caught
			signals.StopJob(func() bool { return true })
		}
		if !signals.EndsWaiting(sig) || time.Since(s.spawned) > raceWindow {
			return
		}
	}
	s.deliver(sig)
}

// leadsSession reports whether golock leads its session: then a terminal's hangup reaches it alone,
// and not its job (ssh -t, docker -it).
func leadsSession() bool {
	sid, _ := unix.Getsid(0)
	return sid == unix.Getpid()
}

// deliver sends the command a signal, after Rewrites.
func (s *supervisor) deliver(sig syscall.Signal) {
	to := s.Rewrites.Apply(sig)
	if to == 0 {
		s.Log(false, "signal dropped", "signal", signals.Name(sig))
		return
	}
	s.signal(to)
	s.Log(false, "signal passed on", "signal", signals.Name(to))
}

// stop begins to end the command: the stop signal, CONT so that stopped processes get it, and KILL
// after that time.
func (s *supervisor) stop(after time.Duration) {
	at := s.in(after)
	if s.state >= stopping {
		s.killAt = min(s.killAt, at) // 0 if KILL was sent
		return
	}
	_ = proctree.BecomeSubreaper() // or the children of those that die now would be lost to the search
	if after <= 0 {
		s.kill()
		return
	}
	s.enter(stopping)
	s.killAt = at
	s.signal(s.StopSignal)
	s.signal(unix.SIGCONT)
	s.Log(false, "stop signal sent", "signal", signals.Name(s.StopSignal))
}

// kill sends KILL, as often as it is called: there may be new processes.
func (s *supervisor) kill() {
	if s.state != killing {
		s.enter(killing)
		s.Log(false, "sending KILL")
	}
	s.killAt = 0
	s.signal(unix.SIGKILL)
}

// stopSpread is longer than it takes until a stop of the whole job has reached golock too.
const stopSpread = 20 * time.Millisecond

// followStop stops golock after a command that has stopped alone: the shell sees that the job has
// stopped, and fg continues it. When the whole job was stopped, both were continued before this.
// golock does not stop while the watchdog is stopped: it continues that first.
func (s *supervisor) followStop() {
	stopped := func() bool {
		return isStopped(s.pid) && !(s.watchdog.exists() && isStopped(s.watchdog.pid))
	}
	if !s.Terminal || s.pid == 0 || !stopped() {
		return
	}
	signals.StopJob(stopped)
	if stopped() {
		// Another Ctrl-Z may have stopped it anew, and is about to stop golock.
		time.Sleep(stopSpread)
		if stopped() {
			_ = unix.Kill(s.pid, unix.SIGCONT)
		}
	}
}

// isStopped reports whether a signal has stopped a child, not a debugger.
func isStopped(pid int) bool {
	p, _ := procfs.ReadStat(pid)
	return p.State == 'T'
}

func statusText(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "signal " + signals.Name(ws.Signal())
	}
	return fmt.Sprintf("exit %d", ws.ExitStatus())
}
