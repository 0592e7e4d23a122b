package runner

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// kin is how golock hears of the command and of those who descend from it: they
// are its own children, or those of a guard.
type kin interface {
	// collect takes in all that has happened since the last call.
	collect(s *supervisor)

	// root is the process whose descendants they are.
	root() int

	// signal sends the command a signal, and all those who share its fate now.
	signal(s *supervisor, sig syscall.Signal)
}

// own is a command that golock has started itself.
type own struct{}

func (own) root() int { return unix.Getpid() }

func (own) signal(s *supervisor, sig syscall.Signal) { s.send(sig) }

// collect takes in every child that has changed: the command, and orphans that
// came to golock as PID 1 or with Tree.
func (own) collect(s *supervisor) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			s.alone = err == unix.ECHILD || s.onlyStrangers()
			return
		}
		if pid != s.pid || s.ended {
			continue
		}
		if ws.Stopped() {
			s.stopped()
			continue
		}
		s.ended, s.status = true, ws
	}
}

// onlyStrangers reports whether the children that are left are none of the
// command's.
func (s *supervisor) onlyStrangers() bool {
	return len(s.strangers) > 0 && s.ended && len(descendants(processes(), unix.Getpid(), s.strangers)) == 0
}
