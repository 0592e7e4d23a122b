package runner

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/procfs"
	"golock/internal/proctree"
)

// collect handles the messages of the watchdog, and the children that have ended or stopped.
func (s *supervisor) collect() {
	if s.watchdog != nil {
		s.readWatchdog()
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		if err != nil || pid <= 0 { // no child has ended or stopped
			if !s.watchdog.exists() {
				s.childless = err == unix.ECHILD || s.onlyPreexistingLeft()
			}
			s.followStop()
			return
		}
		switch {
		case s.watchdog.exists() && pid == s.watchdog.pid:
			s.onWatchdog(ws)
		case pid != s.pid: // an orphan that golock has adopted is reaped
		case ws.Stopped(): // followStop handles a stopped command
		default:
			s.pid, s.exit = 0, ws
			if s.watchdog != nil { // the watchdog is gone, because otherwise the command would be its child
				s.failClosed()
			}
		}
	}
}

// onlyPreexistingLeft reports whether no descendant of the command is left, in a run that waits for all of them
// while golock has preexisting children. Without such children wait4(2) tells that with ECHILD.
func (s *supervisor) onlyPreexistingLeft() bool {
	if len(s.preexisting) == 0 || s.pid != 0 || !s.wholeTree() {
		return false
	}
	return len(s.remaining()) == 0
}

// readWatchdog handles the messages of the watchdog.
func (s *supervisor) readWatchdog() {
	w := s.watchdog
	for w.socket >= 0 {
		m, err := receive(w.socket)
		if err == unix.EAGAIN {
			return
		}
		if err != nil { // the watchdog ends; onWatchdog handles that
			s.Relay.Unwatch(w.socket)
			w.closeSocket()
			return
		}
		switch m.kind {
		case msgEnded:
			s.pid, s.exit = 0, syscall.WaitStatus(m.number)
			wasKilled := len(m.texts) > 0
			if wasKilled {
				s.onDeadline()
			}
			w.send(msgReap, 0)
		case msgChildless:
			s.childless = true
		}
	}
}

// onDeadline notes that the watchdog has killed the command at the deadline.
func (s *supervisor) onDeadline() {
	isNew := s.recordReason(grave, Lost, fmt.Errorf("%w, no renewal for %v", errHeldUp, s.renewer.SinceRenewal()))
	if isNew && s.state != killing {
		s.enter(killing)
	}
}

// onWatchdog handles a change of the watchdog's state.
func (s *supervisor) onWatchdog(ws syscall.WaitStatus) {
	if ws.Stopped() {
		_ = unix.Kill(s.watchdog.pid, unix.SIGCONT) // a stopped watchdog protects nothing
		return
	}
	s.watchdog.pid = 0
	s.Log(false, "watchdog ended", "status", statusText(ws))
	if s.pid != 0 || s.wholeTree() {
		s.failClosed()
	}
}

// failClosed kills the command and all its descendants because the watchdog is gone. Without a watchdog,
// nothing would end them in time if golock itself were stopped.
func (s *supervisor) failClosed() {
	s.recordReason(grave, Fault, fmt.Errorf("%w: the command was stopped", errWatchdogGone))
	s.kill()
}

// preexistingChildren returns the children that this process had before the run: a shell may have
// started some and then have become golock. They and their descendants do not belong to the run.
func preexistingChildren() []proctree.Process {
	if _, _, err := proctree.PeekEnded(); err == unix.ECHILD {
		return nil // nearly all runs have none
	}
	return proctree.Descendants(proctree.Live(), unix.Getpid(), nil)
}

// adopt makes this process a subreaper: descendants of the command become its children when their
// parent dies. It is called just before the command is started, because orphans of the preexisting
// processes also become its children from now on. What those processes have started until now does not
// belong to the run either.
func (s *supervisor) adopt() error {
	if err := proctree.BecomeSubreaper(); err != nil {
		return err
	}
	if len(s.preexisting) == 0 && unix.Getpid() != 1 { // process 1 has got all orphans of its PID namespace
		return nil
	}
	var watchdog []proctree.Process
	if s.watchdog.exists() {
		if p, err := procfs.ReadStat(s.watchdog.pid); err == nil {
			watchdog = append(watchdog, p)
		}
	}
	s.preexisting = proctree.Descendants(proctree.Live(), unix.Getpid(), watchdog)
	return nil
}

// reapOrphans reaps the children that have ended. The children of the watchdog became golock's when it ended, and
// after golock they would belong to process 1, which in a container may not reap them.
func reapOrphans() {
	for {
		pid, err := eintr.Get(func() (int, error) { return syscall.Wait4(-1, nil, unix.WNOHANG, nil) })
		if err != nil || pid <= 0 {
			return
		}
	}
}

// remaining returns the live processes that belong to the command.
func (s *supervisor) remaining() []proctree.Process {
	list := proctree.Live()
	if s.Terminal || s.wholeTree() {
		root := unix.Getpid()
		if s.watchdog.exists() {
			root = s.watchdog.pid
		}
		list = proctree.Descendants(list, root, s.preexisting)
	}
	if s.wholeTree() {
		return list
	}
	return slices.DeleteFunc(list, func(p proctree.Process) bool { return p.Group != s.group })
}

// send signals the command. A command with a process group of its own gets the signal as a group. On a
// terminal the command and its descendants in golock's group get it. With Tree, or after a grave
// reason, every descendant gets it.
func (s *supervisor) send(sig syscall.Signal) {
	if sig == unix.SIGKILL && s.reason.severity == grave { // a search may take long, so KILL comes first
		s.signalCommand(sig)
	}
	if s.pid != 0 && !s.Terminal && !s.wholeTree() {
		s.signalCommand(sig)
		return
	}
	// The search comes first, because it would not find the children of a process that dies of the
	// signal.
	targets := s.remaining()
	s.signalCommand(sig)
	groupHasSignal := s.pid != 0 && !s.Terminal
	for _, p := range targets {
		if p.PID == s.pid || groupHasSignal && p.Group == s.group {
			continue // signalCommand has signalled this process
		}
		if err := proctree.Signal(p, sig); err != nil {
			s.warnUnkillable(p, err)
		}
	}
}

// signalCommand signals the command. Without a terminal it signals the command's process group.
func (s *supervisor) signalCommand(sig syscall.Signal) {
	if s.pid == 0 {
		return
	}
	target := s.pid
	if !s.Terminal {
		target = -s.group
	}
	err := unix.Kill(target, sig)
	if err == nil || err == unix.ESRCH {
		return
	}
	// A seccomp profile may refuse kill(2) and allow pidfd_send_signal(2).
	for _, p := range proctree.Live() {
		isTarget := p.PID == s.pid || !s.Terminal && p.Group == s.group
		if !isTarget {
			continue
		}
		if err := proctree.Signal(p, sig); err != nil {
			s.warnUnkillable(p, err)
		}
	}
}

// warnUnkillable warns once for each process that cannot be signalled.
func (s *supervisor) warnUnkillable(p proctree.Process, err error) {
	if !s.unkillable[p.PID] {
		s.unkillable[p.PID] = true
		s.Log(true, "a process of the command cannot be signalled and may outlive the slot", "pid", p.PID, "error", err)
	}
}
