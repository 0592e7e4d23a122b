package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/fdtable"
	"golock/internal/procfs"
	"golock/internal/proctree"
	"golock/locks"
	"golock/signals"
)

// On a store with leases the command must not outlive the lease, even if golock is killed, stopped
// or swapped out. So it is the child of a watchdog, a process of this same program
// (watchdog_process.go), which is golock's child:
//
//	golock ---- watchdog ---- command ---- ...
//
// The watchdog gets the deadline after each renewal. It kills all descendants of the command when
// the deadline passes, and when golock is gone. No process can leave its tree, because it is a
// child subreaper. If the watchdog is gone, golock, which is a subreaper too, inherits the tree and
// ends it.
//
// golock itself signals the command. The watchdog reports the end of the command at once, but reaps
// the command only when golock knows of its end, or after the deadline. Until then no other process can
// get the command's PID.

// runningProgram is the path of the program that this process executes.
const runningProgram = "/proc/self/exe"

// WatchdogName is the first argument that makes a golock process a watchdog.
const WatchdogName = "golock-watchdog"

// watchdog is golock's side of the watchdog. It belongs to the goroutine that owns the run.
type watchdog struct {
	run     *supervisor
	program string // the program to execute; "" stands for golock's own
	pid     int    // 0 if there is no watchdog
	socket  int    // -1 after it was closed

	ended     syscall.WaitStatus // the wait status of the process, set by dismiss
	takesOver bool               // takeOver was called: the process gives the slots back in golock's place
}

var (
	errWatchdogGone = errors.New("the watchdog of the command is gone")
	errCannotRun    = fmt.Errorf("%w: it cannot run: is it a limit of tasks (ulimit -u, pids.max) or a seccomp profile?", errWatchdogGone)
	errLeaseOver    = errors.New("the slot could not be kept: its lease was over")
	errNoAnswer     = errors.New("the slot could not be kept: its lease was over before the watchdog said whether the command had begun")
	errHeldUp       = errors.New("the slot could not be kept: golock itself was stopped or held up")
)

// exitFault is the exit code of a watchdog whose Go runtime has failed (package fatal).
const exitFault = 70

// exists reports whether the process runs and golock has not given it up. w may be nil.
func (w *watchdog) exists() bool { return w != nil && w.pid != 0 }

// spawn starts the process. golock calls it while it waits for the slot, because the start takes
// longer than a grant.
func (w *watchdog) spawn() error {
	if w == nil || w.pid != 0 {
		return nil
	}
	r := w.run
	pair, err := socketPair()
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	watchdogEnd := fdtable.MoveHigh(pair[1])
	defer unix.Close(watchdogEnd)
	// The watchdog releases the slot with this program, even if a newer version has replaced its file.
	golockProgram := -1
	if fd, err := unix.Open(runningProgram, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		golockProgram = fdtable.MoveHigh(fd)
		defer unix.Close(golockProgram)
	}
	group := 0 // the command gets a group of its own
	if r.Terminal {
		group = unix.Getpgrp()
	}
	program := &command{
		env: r.cmd.env[:r.cmd.common], inherit: []int{watchdogEnd, golockProgram},
		argv: append([]string{WatchdogName, strconv.Itoa(watchdogEnd), strconv.Itoa(group), strconv.Itoa(golockProgram)},
			r.cmd.argv...),
	}
	// The watchdog is not in golock's group, whose members are stopped and killed with the job. An
	// orphaned group is the exception (setpgid(2)): the kernel does not let its members stop, because
	// nobody would continue them. A child in another group of the session would hide that it is orphaned.
	attr := &syscall.SysProcAttr{Setpgid: !r.Terminal || !groupIsOrphaned()}
	if w.program != "" {
		r.Relay.AsCaller(func() { w.pid, err = program.fork(w.program, program.argv, attr) })
	}
	if w.pid == 0 { // there is no w.program, or it cannot be executed
		r.Relay.AsCaller(func() { w.pid, err = program.fork(runningProgram, program.argv, attr) })
	}
	if err != nil {
		unix.Close(pair[0])
		return fmt.Errorf("starting the watchdog from %s: %w", runningProgram, err)
	}
	w.socket = pair[0]
	w.send(msgLeaseRef, 0, append([]string{r.Address}, r.ids()...)...)
	return nil
}

// groupIsOrphaned reports whether golock's process group counts as orphaned (setpgid(2)): its nearest ancestor
// outside of the group, which would continue it after a stop, is not in this session.
func groupIsOrphaned() bool {
	session, _ := unix.Getsid(0)
	for _, pid := range procfs.Ancestors(unix.Getpid()) {
		ancestorSession, err := unix.Getsid(pid)
		if err != nil || ancestorSession != session {
			return true
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			return true
		}
		if group != unix.Getpgrp() {
			return false
		}
	}
	return true
}

// send sends a message. It ignores errors, because other code notices that the watchdog is gone.
func (w *watchdog) send(kind messageKind, number int64, texts ...string) {
	if w != nil {
		_ = send(w.socket, kind, number, texts...)
	}
}

// start orders the watchdog to start the command. After an error no command runs. With errNoAnswer and
// errWatchdogGone the command may have begun, and was killed.
func (w *watchdog) start() (pid int, err error) {
	deadline := w.run.renewer.KillAt()
	err = w.order(deadline)
	if err == unix.EPIPE {
		// The watchdog was killed while golock waited, or cannot run. It has not started the command, so
		// another watchdog may, from golock's own program.
		w.dismiss()
		w.program = ""
		err = w.order(deadline)
	}
	if spawnErr, ok := errors.AsType[*spawnError](err); ok {
		return 0, spawnErr.cause
	}
	switch err {
	case nil, unix.EPIPE: // after EPIPE, awaitStart finds that the watchdog has gone
	case unix.EMSGSIZE:
		return 0, w.run.cmd.explain(unix.E2BIG)
	case unix.EPERM, unix.ENOSYS:
		return 0, os.NewSyscallError("sendto", err)
	default:
		return 0, w.run.cmd.explain(err)
	}
	return w.awaitStart(deadline)
}

// order starts the watchdog, if it does not run yet, and sends it the order to start the command. A
// failed start of the watchdog is a *spawnError.
func (w *watchdog) order(deadline locks.Instant) error {
	err := w.spawn()
	switch {
	case err == nil:
		return send(w.socket, msgStart, int64(deadline), w.run.cmd.env[w.run.cmd.common:]...)
	case lacksResources(err):
		return &spawnError{w.run.cmd.explain(err)}
	case isRefusedCall(err):
		return &spawnError{err}
	}
	return &spawnError{fmt.Errorf("%w: %w", errWatchdogGone, err)}
}

// spawnError says that the watchdog could not be started.
type spawnError struct{ cause error }

func (e *spawnError) Error() string { return e.cause.Error() }

// awaitStart waits until the watchdog says whether it has started the command.
func (w *watchdog) awaitStart(deadline locks.Instant) (pid int, err error) {
	for {
		m, err := receive(w.socket)
		switch {
		case err == unix.EAGAIN:
			left := deadline.Sub(w.run.clock())
			if left <= 0 {
				w.killTree()
				return 0, errNoAnswer
			}
			w.awaitMessage(left)
		case err != nil:
			w.killTree()
			if w.ended.Exited() && w.ended.ExitStatus() == exitFault {
				return 0, errCannotRun
			}
			return 0, errWatchdogGone
		case m.kind == msgStarted:
			return int(m.number), nil
		default: // msgFailed
			return 0, w.startError(m)
		}
	}
}

// startError returns why the watchdog has not started the command.
func (w *watchdog) startError(failed message) error {
	errno := unix.Errno(failed.number)
	switch {
	case errno == unix.ETIME:
		return errLeaseOver
	case len(failed.texts) > 0: // a refused system call
		return os.NewSyscallError(failed.texts[0], errno)
	}
	return w.run.cmd.explain(errno)
}

// resumePause is the time after which golock checks whether a watchdog that does not answer is
// stopped.
const resumePause = 100 * time.Millisecond

// awaitMessage returns when the watchdog has sent a message or has ended, and at the latest after limit or
// resumePause. It continues a watchdog that is stopped.
func (w *watchdog) awaitMessage(limit time.Duration) {
	ready := []unix.PollFd{{Fd: int32(w.socket), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(min(limit, resumePause)))
	n, err := unix.Ppoll(ready, &ts, nil)
	if n == 0 && isStopped(w.pid) {
		_ = unix.Kill(w.pid, unix.SIGCONT) // the PID cannot be reused, because golock has not reaped its child
	}
	if err != nil {
		time.Sleep(signals.RefusedPause)
	}
}

// dismiss ends only the watchdog. Processes that the command left running may stay.
func (w *watchdog) dismiss() {
	if !w.exists() {
		return
	}
	_ = unix.Kill(w.pid, unix.SIGKILL) // the PID cannot be reused, because golock has not reaped its child
	w.closeSocket()                    // if KILL is refused, the watchdog ends when its socket closes
	_, _ = eintr.Get(func() (int, error) { return syscall.Wait4(w.pid, &w.ended, 0, nil) })
	w.pid = 0
}

// canTakeOver reports whether the watchdog can give the slots back in golock's place, or does so already.
func (w *watchdog) canTakeOver() bool { return w.exists() || w != nil && w.takesOver }

// takeOver makes the watchdog give the slots of all names back, as if golock was killed. golock does not wait for
// that. With endsHolds the watchdog also ends the holds. takeOver reports whether there is such a watchdog, since
// this call or an earlier one.
func (w *watchdog) takeOver(endsHolds bool) bool {
	if w.exists() {
		if endsHolds {
			w.send(msgEndHolds, 0)
		}
		w.closeSocket()
		w.pid = 0
		w.takesOver = true
	}
	return w != nil && w.takesOver
}

// killTree ends a watchdog that may have started the command, and all descendants.
func (w *watchdog) killTree() {
	w.dismiss()
	proctree.KillDescendants(w.run.preexisting, func(int, syscall.WaitStatus) {}, w.run.warnUnkillable)
}

func (w *watchdog) closeSocket() {
	if w.socket >= 0 {
		unix.Close(w.socket)
		w.socket = -1
	}
}
