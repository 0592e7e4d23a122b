package runner

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/signals"
)

// supervisor looks after one command from its start to its end. All its state
// belongs to the goroutine that calls supervise.
type supervisor struct {
	*Run
	kin    kin
	pid    int // of the command; also its process group, unless there is a terminal
	status syscall.WaitStatus
	lease  locks.Lease

	// With a lease; see lose.go.
	guard  *guard // nil: none
	keep   *keeper
	desk   *desk // nil: none
	ticker *ticker
	killAt locks.Instant // lost: KILL, if not yet sent
	warned bool          // that the slot is lost
	lost   error         // the slot is, and the command is being ended for that
	broken error         // golock cannot go on; the same
	taken  error         // the slot was taken back, on a store without leases
	wide   bool          // whatever is done is done to all descendants

	spawned  time.Time
	limit    time.Time // the time limit; zero: none, or reached
	deadline time.Time // KILL; zero: not ending, or sent

	ended    bool // the command has been collected; pid is not ours any more
	alone    bool // no child of any kind is left
	asked    bool // golock was told to stop
	timedOut bool
	ending   bool // golock itself is ending the command: stop signal sent
	killing  bool // and KILL
}

// lookAgain is how often the end of processes is asked for that are not
// golock's children; only while golock ends a command whose first process is
// gone.
const lookAgain = 20 * time.Millisecond

// supervise returns when the command has ended, and with Tree when all its
// descendants have.
func (s *supervisor) supervise(pending []syscall.Signal) Outcome {
	if s.TimeLimit > 0 {
		s.limit = s.spawned.Add(s.TimeLimit)
	}
	for _, sig := range pending {
		s.deliver(sig)
	}
	for {
		// CHLD may have come with the signals of the start, so look first.
		s.kin.collect(s)
		if s.done() {
			return s.outcome()
		}
		s.attend()
		if s.ended && s.asked && s.Tree {
			s.end(s.KillAfter)
		}
		sig, ok := s.Relay.Next(s.patience())
		if ok && sig != 0 && sig != unix.SIGCHLD {
			s.pass(sig)
		}
		s.timers() // also in a flood of signals
	}
}

// patience is how long to wait for the next event at most; negative: for ever.
func (s *supervisor) patience() time.Duration {
	var next time.Time
	for _, t := range []time.Time{s.limit, s.deadline} {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	switch {
	case s.ended && s.ending:
		return lookAgain
	case next.IsZero():
		return -1
	}
	return max(time.Until(next), 0)
}

// timers does what is due.
func (s *supervisor) timers() {
	now := time.Now()
	if !s.limit.IsZero() && !now.Before(s.limit) {
		s.Log(false, "time limit reached", "limit", s.TimeLimit)
		s.limit, s.timedOut = time.Time{}, true
		s.end(s.KillAfter)
	}
	if s.killing || (!s.deadline.IsZero() && !now.Before(s.deadline)) {
		s.kill()
	}
}

func (s *supervisor) outcome() Outcome {
	switch {
	case s.broken != nil:
		return Outcome{Kind: Fault, Err: s.broken}
	case s.lost != nil:
		return Outcome{Kind: Lost, Status: s.status, Err: s.lost}
	case s.taken != nil:
		return Outcome{Kind: Lost, Status: s.status, Err: s.taken}
	case s.timedOut:
		return Outcome{Kind: TimedOut, Status: s.status}
	}
	return Outcome{Kind: Ended, Status: s.status}
}

func statusText(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "signal " + signals.Name(ws.Signal())
	}
	return "exit " + joinInts([]int{ws.ExitStatus()})
}

// stopped follows a command that has stopped by itself, as in a job without
// golock: the shell learns that the job has stopped, and fg continues it. When
// the whole job was stopped, golock was too, and comes here after both were
// continued.
func (s *supervisor) stopped() {
	if !s.Terminal || !isStopped(s.pid) {
		return
	}
	signals.StopSelf(true)
	if isStopped(s.pid) {
		_ = unix.Kill(s.pid, unix.SIGCONT)
	}
}

// done reports whether there is nothing left to wait for.
func (s *supervisor) done() bool {
	switch {
	case !s.ended:
		return false
	case s.lost != nil || s.broken != nil:
		return s.alone
	case s.ending:
		return len(s.remaining()) == 0
	case s.Tree:
		return s.alone
	}
	return true
}

// spawnWindow is for what the terminal sends while the command is being
// started: it may have come too early for the command. Twice is better there
// than not at all.
const spawnWindow = time.Millisecond

// pass takes a signal that golock got. With a terminal the kernel has sent
// some of them to the whole job, so that the command has them already.
func (s *supervisor) pass(sig syscall.Signal) {
	if sig == unix.SIGTERM {
		if err := marked(s.lease); err != nil {
			s.evict(err)
			return
		}
	}
	if signals.EndsWaiting(sig) {
		s.asked = true
	}
	if s.Terminal && signals.FromTerminal(sig) && !(sig == unix.SIGHUP && leadsSession()) {
		if sig == unix.SIGTSTP { // from the time of waiting, when it was caught
			signals.StopSelf(true)
		}
		if !signals.EndsWaiting(sig) || time.Since(s.spawned) > spawnWindow {
			return
		}
	}
	s.deliver(sig)
}

// evict ends the command because the slot was taken back. A time limit that
// has been reached before stays the reason.
func (s *supervisor) evict(why error) {
	if s.taken != nil {
		return // told again
	}
	s.Log(false, "slot taken back", "error", why)
	if !s.timedOut {
		s.taken = why
	}
	s.end(s.KillAfter)
}

// leadsSession reports whether golock is the process that a terminal's hangup
// is told to (ssh -t, docker -it); the job learns of it from nobody else.
func leadsSession() bool {
	sid, err := unix.Getsid(0)
	return err == nil && sid == unix.Getpid()
}

// deliver sends the command a signal of its own, rewritten if so asked.
func (s *supervisor) deliver(sig syscall.Signal) {
	to := s.Rewrites.Apply(sig)
	if to == 0 {
		s.Log(false, "signal dropped", "signal", signals.Name(sig))
		return
	}
	s.kin.signal(s, to)
	s.Log(false, "signal passed on", "signal", signals.Name(to))
}

// send signals the command: its process group where that is its own; else
// itself and those of its descendants that are in golock's group. With Tree it
// signals every descendant.
func (s *supervisor) send(sig syscall.Signal) {
	if sig == unix.SIGKILL && s.wide && !s.ended { // before the search for the others, who are not lost by this
		_ = unix.Kill(s.pid, unix.SIGKILL)
	}
	if !s.ended && !s.Terminal && !s.Tree && !s.wide {
		_ = unix.Kill(-s.pid, sig)
		return
	}
	// Who they are is found out first: the children of one that dies of the
	// signal are nobody's afterwards.
	rest := s.remaining()
	switch {
	case s.ended:
	case s.Terminal:
		_ = unix.Kill(s.pid, sig)
	default:
		_ = unix.Kill(-s.pid, sig)
	}
	for _, p := range rest {
		if p.pid == s.pid || (!s.ended && !s.Terminal && p.group == s.pid) {
			continue // has it already
		}
		p.signal(sig)
	}
}

// remaining are the live processes that belong to the command.
func (s *supervisor) remaining() []process {
	all := processes()
	if s.Tree || s.wide {
		return descendants(all, s.kin.root(), s.strangers)
	}
	if s.Terminal {
		return inGroup(descendants(all, s.kin.root(), s.strangers), unix.Getpgrp())
	}
	return inGroup(all, s.pid)
}

// end begins to end the command: the stop signal, and CONT for those that are
// stopped and would not see it. KILL follows after that time.
func (s *supervisor) end(after time.Duration) {
	if at := time.Now().Add(after); s.ending {
		if !s.killing && at.Before(s.deadline) {
			s.deadline = at
		}
		return
	}
	s.ending = true
	becomeSubreaper() // children of those that die now stay in sight
	if after <= 0 {
		s.kill()
		return
	}
	s.deadline = time.Now().Add(after)
	s.kin.signal(s, s.StopSignal)
	s.kin.signal(s, unix.SIGCONT)
	s.Log(false, "stop signal sent", "signal", signals.Name(s.StopSignal))
}

// kill sends KILL, as often as it is called: there may be new ones.
func (s *supervisor) kill() {
	if !s.killing {
		s.Log(false, "sending KILL")
	}
	s.killing, s.deadline = true, time.Time{}
	s.kin.signal(s, unix.SIGKILL)
}

// endNow ends the command without the help of anything that may have failed:
// the way out of a fault in golock itself.
func (s *supervisor) endNow() {
	if s.pid == 0 || s.ended {
		return
	}
	s.wide = s.guard != nil
	s.end(s.KillAfter)
	for s.kin.collect(s); !s.done(); s.kin.collect(s) {
		s.timers()
		time.Sleep(lookAgain)
	}
}
