package runner

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"golock/internal/entry"
	"golock/internal/procfs"
	"golock/internal/proctree"
	"golock/locks"
	"golock/signals"
)

// watchdogProcess is the process between golock and the command (see watchdog.go). One goroutine
// owns its state. It runs on a thread that lives as long as the process, because the kernel kills
// the command when that thread ends (PR_SET_PDEATHSIG, prctl(2)).
//
// The watchdog passes signals on to golock, which may drop them. The command inherits what golock's caller ignored
// or blocked, through the watchdog.
type watchdogProcess struct {
	relay  *signals.Relay
	clock  locks.Clock
	socket int      // the socket to golock; -1 when golock is gone
	golock int      // the PID of golock
	cmd    *command // nil after its start
	group  int      // the process group that the command joins; 0 if it gets one of its own

	leases golockLeases // what to release if golock is killed

	deadline  locks.Instant // 0 before the first deadline
	pid       int           // the command; 0 before its start and after it was reaped
	reported  bool          // golock was told that the command has ended
	childless bool          // golock was told that no descendant is left
}

// ErrNotSpawned says that something else than golock run has started the watchdog.
var ErrNotSpawned = errors.New("a watchdog is started by golock run only")

// Watchdog does the work of a watchdog for its parent golock. open opens the store, which has
// leases.
func Watchdog(args []string, open func(url string) (locks.Store, error)) error {
	runtime.LockOSThread()
	w, err := newWatchdogProcess(args)
	if err != nil {
		return err
	}
	w.run()
	return w.leases.release(w.relay, open)
}

// newWatchdogProcess reads the arguments that watchdog.spawn has made: the name, the descriptor of the socket, the
// process group, the descriptor of golock's program, and the command.
func newWatchdogProcess(args []string) (*watchdogProcess, error) {
	if len(args) < 5 {
		return nil, ErrNotSpawned
	}
	socket, noSocket := strconv.Atoi(args[1])
	group, noGroup := strconv.Atoi(args[2])
	program, noProgram := strconv.Atoi(args[3])
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == unix.EPERM || err == unix.ENOSYS {
		return nil, os.NewSyscallError("getsockopt", err) // golock notices that its watchdog has ended
	}
	if errors.Join(noSocket, noGroup, noProgram, err) != nil {
		return nil, ErrNotSpawned
	}
	unix.CloseOnExec(socket)
	unix.CloseOnExec(program)
	w := &watchdogProcess{
		clock: locks.BootTime, socket: socket, golock: int(peer.Pid), group: group,
		leases: golockLeases{program: program},
		cmd:    &command{argv: args[4:], env: entry.Environ()},
	}
	if w.relay, err = signals.NewRelay(signals.NoTerminal); err != nil {
		return nil, err
	}
	w.relay.Catch()
	w.relay.CatchIgnored()
	w.relay.Watch(socket)
	if err := proctree.BecomeSubreaper(); err != nil {
		return nil, err
	}
	nameProcess(WatchdogName)
	return w, nil
}

// run returns when golock is gone and no process of the command is left.
func (w *watchdogProcess) run() {
	for {
		w.obey()
		if w.mustKill() {
			w.killAll()
		}
		if w.socket < 0 {
			return
		}
		w.collect()
		w.relay.WakeAt(int64(w.deadline))
		if sig, _ := w.relay.Next(-1); sig != 0 {
			w.passOn(sig)
		}
	}
}

// passOn sends golock a signal that the watchdog got: a command that signals its parent means golock.
// On a terminal (w.group is not 0) golock gets the terminal's signals itself, and CHLD tells it that the
// command has stopped.
func (w *watchdogProcess) passOn(sig syscall.Signal) {
	concernsGolock := signals.Forwarded(sig) || signals.IsFault(sig)
	if w.group != 0 {
		concernsGolock = sig == unix.SIGCHLD || concernsGolock && !signals.FromTerminal(sig)
	}
	if parent := os.Getppid(); concernsGolock && parent == w.golock {
		_ = unix.Kill(parent, sig)
	}
}

// mustKill reports whether the command must be dead, because golock is gone or the deadline has passed.
func (w *watchdogProcess) mustKill() bool {
	return w.socket < 0 || (w.deadline != 0 && w.clock() >= w.deadline)
}

// obey handles the messages of golock.
func (w *watchdogProcess) obey() {
	for w.socket >= 0 {
		m, err := receive(w.socket)
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			w.relay.Unwatch(w.socket)
			unix.Close(w.socket)
			w.socket = -1
			return
		}
		switch m.kind {
		case msgLeaseRef:
			w.leases.url, w.leases.ids = m.texts[0], m.texts[1:]
		case msgEndHolds:
			w.leases.endsHolds = true
		case msgStart:
			w.deadline = locks.Instant(m.number)
			w.start(m.texts)
		case msgDeadline:
			w.deadline = locks.Instant(m.number)
		case msgReap:
			if w.reported {
				_, _ = syscall.Wait4(w.pid, nil, 0, nil)
				w.pid, w.reported = 0, false
			}
		}
	}
}

// start starts the command, unless it is too late.
func (w *watchdogProcess) start(variables []string) {
	if w.clock() >= w.deadline {
		_ = send(w.socket, msgFailed, int64(unix.ETIME))
		return
	}
	w.cmd.env = append(w.cmd.env, variables...)
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: w.group, Pdeathsig: unix.SIGKILL}
	var err error
	w.relay.AsCaller(func() { w.pid, err = w.cmd.spawn(attr) })
	if err != nil {
		errno := unix.EINVAL // stays if err has no errno
		errors.As(err, &errno)
		var call []string
		if refused, ok := errors.AsType[*os.SyscallError](err); ok {
			call = []string{refused.Syscall}
		}
		_ = send(w.socket, msgFailed, int64(errno), call...)
		return
	}
	_ = send(w.socket, msgStarted, int64(w.pid))
	w.cmd = nil
	closeInherited()
}

// closeInherited closes the descriptors that the command inherits, so that the watchdog keeps no
// pipe open. The watchdog's own descriptors are close-on-exec.
func closeInherited() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(null)
	for fd := range 3 {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC)
	}
	fds, _ := procfs.FDs(0)
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// collect reports the end of the command and of the last descendant, and reaps orphans. The command
// stays a zombie until golock knows of its end.
func (w *watchdogProcess) collect() {
	for !w.reported && !w.childless {
		pid, status, err := proctree.PeekEnded()
		switch {
		case err == unix.ECHILD:
			w.childless = w.cmd == nil // before the start of the command there is nothing to report
			if w.childless {
				_ = send(w.socket, msgChildless, 0)
			}
			return
		case err != nil || pid == 0:
			return
		case pid == w.pid:
			w.reported = true
			_ = send(w.socket, msgEnded, int64(status))
		default:
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

// killAll kills all descendants, and returns when none is left.
func (w *watchdogProcess) killAll() {
	// The kills that need no search come first, because many watchdogs may have to search at the same
	// time.
	switch {
	case w.pid == 0:
	case w.group == 0:
		_ = unix.Kill(-w.pid, unix.SIGKILL)
	default:
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
	proctree.KillDescendants(nil,
		func(pid int, ws syscall.WaitStatus) {
			if pid == w.pid {
				if !w.reported {
					_ = send(w.socket, msgEnded, int64(ws), "killed")
				}
				w.pid, w.reported = 0, false
			}
		},
		func(proctree.Process, error) {}, // golock also tries to kill the process, and warns
	)
	w.deadline = 0
}
