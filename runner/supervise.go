package runner

import (
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

// supervisor is the state of a run, from Run.Do's first step to its outcome. It belongs to the goroutine
// that called Run.Do.
type supervisor struct {
	*Run
	state  state
	reason reason
	out    *Outcome // the result of the run; nil as long as it is not known

	cmd            *command
	watchdog       *watchdog        // nil if the run needs none
	status         *statusServer    // nil if there is no status socket
	lease          locks.Lease      // nil before the grant
	renewer        *renewal.Renewer // nil if the lease does not expire
	later          []func()         // called when the command has started
	pendingSignals []syscall.Signal // signals for the command that came before its start

	preexisting []proctree.Process   // children from before the run, and their descendants; not part of the run
	pid         int                  // the PID of the command; 0 before its start and after it was collected
	group       int                  // the process group of the command
	exit        syscall.WaitStatus   // how the command ended
	childless   bool                 // no child is left, except preexisting ones
	signal      func(syscall.Signal) // signals the command: send, except in tests
	clock       locks.Clock
	unkillable  map[int]bool // processes that cannot be signalled

	term   locks.Term // the term whose deadline the watchdog knows
	warned bool       // golock has warned of a lost slot (OnlyWarn)

	began, spawned time.Time     // when the run began, and its command; zero before that
	waited, ran    time.Duration // how long the run waited for its slot, and how long its command ran
	waitedFor      []locks.Entry // see Outcome
	limitAt        locks.Instant // when the time limit is reached; 0 if there is none, or it was reached
	killAt         locks.Instant // when KILL follows the stop signal; 0 if there is none, or it was sent
}

// rescanPause is the time between two searches for processes that are not children of golock.
// golock searches while it ends a command whose first process is gone or was sent KILL.
const rescanPause = 20 * time.Millisecond

// supervise returns when the command has ended, and with Tree when all its descendants have.
func (s *supervisor) supervise() *Outcome {
	if s.TimeLimit > 0 {
		s.limitAt = s.in(s.TimeLimit)
	}
	for _, sig := range s.pendingSignals {
		s.deliver(sig)
	}
	for {
		if s.renewer != nil {
			// Step reads the clock before collect. So a lease counts as lost only if the command was still
			// running after that.
			s.renewer.Step()
		}
		if fault := s.status.failure(); fault != nil {
			panic(fault)
		}
		// CHLD may have come with the signals of the start, so collect comes before waiting.
		s.collect()
		if s.finished() {
			s.enter(ended)
			kind := Ended
			if s.reason.severity != noReason {
				kind = s.reason.kind
			}
			return &Outcome{Kind: kind, Err: s.reason.err}
		}
		hasOnlyDescendants := s.state == running && s.pid == 0
		if hasOnlyDescendants && s.reason.severity == requested { // a run that was told to stop ends them too
			s.stop(s.KillAfter)
		}
		s.handleRenewal()
		s.Relay.WakeAt(int64(s.wakeAt()))
		if sig, ok := s.Relay.Next(-1); ok && sig != 0 && sig != unix.SIGCHLD {
			s.onSignal(sig)
		}
		s.onTime() // called here so that a flood of signals cannot delay it
	}
}

// handleRenewal acts on the result of the renewer's last step.
func (s *supervisor) handleRenewal() {
	r := s.renewer
	if r == nil {
		return
	}
	isLost := r.Lost != nil
	switch {
	case s.reason.severity == grave: // golock is already ending the command
	case errors.As(r.Lost, new(*locks.EvictedError)):
		// An eviction is on purpose, so it ends the command also with OnlyWarn.
		s.loseLease(takenBack(r.Lost))
	case isLost && !s.OnlyWarn:
		s.loseLease(r.Lost)
	case isLost && !s.warned:
		s.Log(true, "the slot is lost, the command goes on", "error", r.Lost)
	case r.Term != s.term:
		s.watchdog.send(msgDeadline, int64(r.KillAt()))
	}
	s.term, s.warned = r.Term, isLost
}

// loseLease ends the command and all its descendants because the slot is lost or soon will be.
func (s *supervisor) loseLease(err error) {
	s.Log(false, "slot lost", "error", err)
	s.recordReason(grave, Lost, err)
	now, window := s.clock(), s.renewer.Window
	if errors.As(err, new(*locks.EvictedError)) {
		window = s.KillAfter
	}
	left := min(window, s.renewer.KillAt().Sub(now))
	s.watchdog.send(msgDeadline, int64(now.Add(left)))
	s.stop(left)
}

// finished reports whether the run has nothing left to wait for.
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

// in returns the instant that is d after now.
func (s *supervisor) in(d time.Duration) locks.Instant {
	return s.clock().Add(min(d, math.MaxInt64/2)) // half of the range cannot overflow, and outlasts any run
}

// wakeAt returns when the next action is due, or 0 if none is.
func (s *supervisor) wakeAt() (first locks.Instant) {
	due := []locks.Instant{s.limitAt, s.killAt}
	if s.renewer != nil {
		due = append(due, s.renewer.WakeAt())
	}
	if s.state == killing || s.state == stopping && s.pid == 0 { // a KILL may have been refused, so it is repeated
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
		s.recordReason(severe, TimedOut, fmt.Errorf("%s: the command was stopped at its time limit of %v", s.lockText(), s.TimeLimit))
		s.stop(s.KillAfter)
	}
	if s.state == killing || (s.killAt != 0 && now >= s.killAt) {
		s.kill()
	}
}

// raceWindow is a time after the start. During it golock also passes on an INT, QUIT or HUP that
// the terminal sends to the whole job, because the command may not have existed when it was sent. A
// command may then get the signal twice.
const raceWindow = time.Millisecond

// onSignal handles a signal to golock. With a terminal the kernel sends some signals to the whole
// job, and so to the command.
func (s *supervisor) onSignal(sig syscall.Signal) {
	if sig == unix.SIGTERM {
		if err := s.lease.Evicted(); err != nil {
			isNew := s.recordReason(severe, Lost, takenBack(err)) // false if the signal was sent again
			if isNew {
				s.Log(false, "slot taken back", "error", s.reason.err)
				s.stop(s.KillAfter)
			}
			return
		}
	}
	if signals.IsFault(sig) { // golock does not die of the signal at once, because the command would run on alone
		s.recordReason(grave, Fault, fmt.Errorf("%w: the command was stopped", faultSent(sig)))
		s.stop(s.KillAfter)
		return
	}
	if !signals.Forwarded(sig) {
		return
	}
	if signals.AsksToStop(sig) && !s.Relay.Ignored(sig) {
		s.recordReason(requested, Ended, nil)
	}
	if !s.reachesJob(sig) {
		s.deliver(sig)
		return
	}
	if sig == unix.SIGTSTP { // it came while the waiting run still caught it, so golock has not stopped yet
		signals.StopJob(func() bool { return true })
	}
	if signals.EndsWaiting(sig) && time.Since(s.spawned) <= raceWindow {
		s.deliver(sig)
	}
}

// reachesJob reports whether the kernel sends a signal to the whole job on the terminal, and so to the
// command.
func (s *supervisor) reachesJob(sig syscall.Signal) bool {
	if !s.Terminal || !signals.FromTerminal(sig) {
		return false
	}
	return sig != unix.SIGHUP || !leadsSession()
}

// leadsSession reports whether golock leads its session. The hangup of a terminal then reaches only
// golock, not its job (ssh -t, docker -it).
func leadsSession() bool {
	sid, _ := unix.Getsid(0)
	return sid == unix.Getpid()
}

// deliver sends a signal to the command, as Rewrites says.
func (s *supervisor) deliver(sig syscall.Signal) {
	to := s.Rewrites.Apply(sig)
	if to == 0 {
		s.Log(false, "signal dropped", "signal", signals.Name(sig))
		return
	}
	s.signal(to)
	s.Log(false, "signal passed on", "signal", signals.Name(to))
}

// stop begins to end the command. It sends the stop signal, and CONT so that stopped processes get it.
// KILL follows after the given time.
func (s *supervisor) stop(after time.Duration) {
	at := s.in(after)
	if s.state >= stopping {
		s.killAt = min(s.killAt, at) // stays 0 if KILL was sent
		return
	}
	_ = proctree.BecomeSubreaper() // without it the search would miss the children of processes that die now
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

// kill sends KILL. It is called repeatedly, because there may be new processes.
func (s *supervisor) kill() {
	if s.state != killing {
		s.enter(killing)
		s.Log(false, "sending KILL")
	}
	s.killAt = 0
	s.signal(unix.SIGKILL)
}

// stopSpread is time enough for a stop signal to the whole job to reach golock after the command.
const stopSpread = 20 * time.Millisecond

// followStop stops golock if the command alone has stopped. The shell then sees that the job has
// stopped, and fg continues it. If the whole job was stopped, the shell
// has continued the command before golock comes here.
func (s *supervisor) followStop() {
	if !s.Terminal || s.pid == 0 || !s.commandHasStopped() {
		return
	}
	signals.StopJob(s.commandHasStopped)
	if !s.commandHasStopped() {
		return
	}
	// Another Ctrl-Z may have stopped the command again, and is about to stop golock.
	time.Sleep(stopSpread)
	if s.commandHasStopped() {
		_ = unix.Kill(s.pid, unix.SIGCONT)
	}
}

// commandHasStopped reports whether the command is stopped. It returns false while the watchdog is
// stopped too: golock must not stop then, but continue the watchdog.
func (s *supervisor) commandHasStopped() bool {
	if !isStopped(s.pid) {
		return false
	}
	return !s.watchdog.exists() || !isStopped(s.watchdog.pid)
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
