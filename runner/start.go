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

// start starts the command, or becomes it. An outcome says why there is no command.
func (s *supervisor) start() *Outcome {
	s.cmd.addGrants(grantsOf(s.lease))
	if !s.Close {
		s.cmd.inherit = s.lease.Files()
	}
	if s.Exec {
		return s.becomeCommand()
	}
	if failed := s.beginRenewals(); failed != nil {
		return failed
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
	if failed := s.startProcess(); failed != nil {
		return failed
	}
	s.spawned = time.Now()
	s.group = s.pid
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

// beginRenewals makes the renewer of a lease that ends. It returns an outcome if the command would be stopped at
// once.
func (s *supervisor) beginRenewals() *Outcome {
	if !s.lease.Term().Ends() {
		return nil
	}
	killAfter := s.KillAfter
	if s.OnlyWarn {
		killAfter = 0 // the command gets no stop signal
	}
	s.renewer = renewal.New(s.lease, locks.BootTime, killAfter, s.Relay.Wake, s.Log)
	s.term = s.renewer.Term
	if !s.OnlyWarn && s.clock() >= s.renewer.StopAt() {
		return s.outcomeOfLateGrant(s.lease, errLeaseOver)
	}
	return nil
}

// beginHolds begins the holds of the names that were granted before the last one. The grant could not begin
// them, because a hold counts from the start of the command. If beginHolds fails, or a signal that ends golock
// comes meanwhile, the outcome ends the run.
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
			return s.outcomeOfHolds(err)
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

// outcomeOfHolds returns the outcome of a run whose holds could not begin, or nil if there is no error.
func (s *supervisor) outcomeOfHolds(err error) *Outcome {
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

// startProcess starts the command, and sets its PID. An outcome says why it could not.
func (s *supervisor) startProcess() *Outcome {
	pid, err := s.spawnCommand()
	s.pid = pid
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errLeaseOver):
		return s.outcomeOfLateGrant(s.lease, err)
	case err == errNoAnswer: // the command may have begun, so the slot counts as lost while it ran
		return &Outcome{Kind: Lost, Err: err}
	}
	return notStarted(err)
}

// spawnCommand starts the command as a child of the watchdog, or of golock if there is no watchdog.
func (s *supervisor) spawnCommand() (pid int, err error) {
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

// becomeCommand executes the command in golock's place. It returns only if that fails. It sends the signals that
// came before the start to this process again, so that they act on the command.
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
	var evicted error
	if sig == unix.SIGTERM { // a local queue evicts by TERM
		evicted = s.lease.Evicted()
	}
	switch {
	case evicted != nil: // also if the caller ignores TERM
		return s.lostBefore(Busy, takenBack(evicted))
	case s.Relay.Ignored(sig):
	case signals.EndsWaiting(sig):
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

// isRefusedCall reports whether the kernel, or a seccomp profile, refuses a system call that golock needs to
// start a command or to end it.
func isRefusedCall(err error) bool {
	return errors.As(err, new(*os.SyscallError)) && !lacksResources(err)
}

// lacksResources reports whether a process could not be started because the host lacks processes, descriptors or
// memory. Neither the command nor golock has a fault then.
func lacksResources(err error) bool {
	for _, lack := range []error{unix.EAGAIN, unix.EMFILE, unix.ENFILE, unix.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}
