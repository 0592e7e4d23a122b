package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner/renewal"
	"golock/signals"
)

// start starts the command, or becomes it. An outcome says why there is none.
func (s *supervisor) start() *Outcome {
	var err error
	s.cmd.addGrants(grantsOf(s.lease))
	if !s.Close {
		s.cmd.inherit = s.lease.Files()
	}
	if s.Exec {
		return s.becomeCommand()
	}
	if s.lease.Term().Ends() {
		killAfter := s.KillAfter
		if s.OnlyWarn {
			killAfter = 0 // the command gets no stop signal
		}
		s.renewer = renewal.New(s.lease, locks.BootTime, killAfter, s.Relay.Wake, s.Log)
		s.term = s.renewer.Term
		if !s.OnlyWarn && s.clock() >= s.renewer.StopAt() { // the command would be stopped at once
			return s.outcomeOfLateGrant(s.lease, errLeaseOver)
		}
	}
	if failed := s.beginHolds(); failed != nil {
		return failed
	}
	if err := s.status.serve(heldLease{lease: s.lease, onLost: s.renewer.RenewSoon}); err != nil {
		s.Log(false, "status socket unavailable", "error", err)
	}
	if failed := s.takeSignals(); failed != nil {
		return failed
	}
	s.Relay.CatchIgnored()
	if s.watchdog != nil || s.Tree {
		if err := s.adopt(); err != nil {
			return notStarted(err)
		}
	}
	s.pid, err = s.startProcess()
	switch {
	case errors.Is(err, errLeaseOver):
		return s.outcomeOfLateGrant(s.lease, err)
	case err == errNoAnswer: // the command may have begun, so the slot counts as lost while it ran
		return &Outcome{Kind: Lost, Err: err}
	case err != nil:
		return notStarted(err)
	}
	s.spawned, s.group = time.Now(), s.pid
	if s.Terminal {
		s.group = unix.Getpgrp()
	}
	s.enter(running)
	if s.watchdog != nil {
		s.Relay.Watch(s.watchdog.socket)
	}
	for _, work := range s.later {
		work()
	}
	s.Log(false, "command started", "pid", s.pid)
	s.warn(ofPromises)
	return nil
}

// beginHolds begins the holds of the names that were granted before the last one, because they count from the
// start of the command. If that fails the slots cannot be kept, and the run ends. A signal ends the run too, as
// before the grant.
func (s *supervisor) beginHolds() *Outcome {
	if s.Request.Hold == 0 || len(s.Earlier) == 0 {
		return nil
	}
	limit := releaseLimit
	if s.renewer != nil {
		limit = s.renewer.StopAt().Sub(s.clock())
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	begun := make(chan error, 1)
	go func() {
		defer s.Relay.Wake()
		var err error
		defer func() { begun <- err }()
		defer locks.Recover(&err)
		err = s.lease.Hold(ctx)
	}()
	for {
		select {
		case err := <-begun:
			return s.holdsFailed(err)
		default:
		}
		sig, _ := s.Relay.Next(-1)
		if failed := s.onEarlySignal(sig); failed != nil {
			cancel()
			select {
			case <-begun: // the release should not overtake the request for the holds
			case <-time.After(leaveLimit):
			}
			return failed
		}
	}
}

// holdsFailed returns the outcome of holds that could not begin, or nil if there is no error.
func (s *supervisor) holdsFailed(err error) *Outcome {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*locks.PanicError)):
		return &Outcome{Kind: Fault, Err: err}
	case errors.As(err, new(*locks.EvictedError)):
		return s.lostBefore(Busy, takenBack(err))
	}
	if errors.Is(err, locks.ErrLost) {
		err = errors.New(err.Error()) // not ErrLost: no command has lost its slot
	}
	return s.lostBefore(Refused, fmt.Errorf("its hold cannot begin: %w", err))
}

// startProcess starts the command as a child of the watchdog, or of golock if there is no watchdog.
func (s *supervisor) startProcess() (pid int, err error) {
	if s.watchdog != nil {
		return s.watchdog.start()
	}
	attr := &syscall.SysProcAttr{Setpgid: !s.Terminal}
	if s.DieWithGolock {
		// The kernel kills the command when this thread ends, so it must live as long as the process.
		runtime.LockOSThread()
		attr.Pdeathsig = unix.SIGKILL
	}
	s.Relay.AsCaller(func() { pid, err = s.cmd.spawn(attr) })
	return pid, err
}

// becomeCommand executes the command in golock's place. It returns only if that fails. This process
// gets the signals that came before, with the actions that the command has at its start.
func (s *supervisor) becomeCommand() *Outcome {
	if failed := s.beginHolds(); failed != nil {
		return failed
	}
	s.Relay.Yield()
	if failed := s.takeSignals(); failed != nil {
		return failed
	}
	var err error
	s.Relay.AsCaller(func() {
		for _, sig := range s.pendingSignals {
			_ = unix.Kill(unix.Getpid(), sig)
		}
		err = s.cmd.exec()
	})
	return notStarted(err)
}

// takeSignals takes the signals that came since the grant. If one ends golock, the command is not
// started.
func (s *supervisor) takeSignals() *Outcome {
	for {
		sig, hasCome := s.Relay.Next(0)
		if !hasCome {
			return nil
		}
		if failed := s.onEarlySignal(sig); failed != nil {
			return failed
		}
	}
}

// onEarlySignal handles a signal that came after the grant and before the start of the command. 0 stands for
// no signal. An outcome ends the run.
func (s *supervisor) onEarlySignal(sig syscall.Signal) *Outcome {
	switch {
	case s.Relay.Ignored(sig) && sig != unix.SIGTERM:
	case s.Relay.Ignored(sig) && s.lease.Evicted() == nil: // TERM after an eviction counts although it is ignored
	case signals.EndsWaiting(sig):
		if sig == unix.SIGTERM {
			if err := s.lease.Evicted(); err != nil {
				return s.lostBefore(Busy, takenBack(err))
			}
		}
		return interruptedBy(sig)
	case sig != 0 && sig != unix.SIGCHLD:
		s.pendingSignals = append(s.pendingSignals, sig)
	}
	return nil
}

// notStarted is the outcome of a command that could not be started.
func notStarted(err error) *Outcome {
	switch {
	case isRefusedCall(err):
		return &Outcome{Kind: Refused, Err: fmt.Errorf("%w: a run needs that system call; allow it in the seccomp profile", err)}
	case lacksResources(err):
		return &Outcome{Kind: Refused, Err: err}
	case errors.Is(err, errWatchdogGone):
		return &Outcome{Kind: Fault, Err: err}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return &Outcome{Kind: NotFound, Err: err}
	}
	return &Outcome{Kind: NotExecutable, Err: err}
}

// isRefusedCall reports whether the kernel, or a seccomp profile, refuses a system call without which a
// command cannot be started or looked after.
func isRefusedCall(err error) bool {
	return errors.As(err, new(*os.SyscallError)) && !lacksResources(err)
}

// lacksResources reports whether a process could not be started for want of processes, descriptors or
// memory: that is no fault of the command or of golock.
func lacksResources(err error) bool {
	for _, lack := range []error{unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}
