package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On a leased store the command must not outlive the lease, even if golock is
// killed, stopped or swapped out. So it is the child of a guard, a process of
// this same program (warden.go), and the guard is golock's child:
//
//	golock ---- guard ---- command ---- ...
//
// The guard is told the deadline after each renewal. It kills all that descends
// from the command when the deadline passes, and when golock is gone; nothing
// can leave its tree, since it is a child subreaper. If the guard is gone,
// golock, which is one too, inherits the tree and ends it.
//
// golock signals the command itself. The guard tells of the command's end at
// once but collects it only when golock has heard of it, so that the number is
// never another process's when golock uses it. Only past the deadline it does
// not wait for that.

// GuardName is the first argument of a process that is to be a guard.
const GuardName = "golock-guard"

// guard is golock's end of it. It belongs to the goroutine that owns the run.
type guard struct {
	run    *Run
	cmd    *command
	env    []string // of the command, without what the store gives: that comes with start
	pid    int      // 0: none is there
	socket int      // -1: the guard has hung up, or there is none
	heard  bool     // from the guard, that the command has ended
}

var (
	errGuardGone = errors.New("the guard of the command is gone")
	errGuardMute = errors.New("the guard of the command does not answer")
	errTooLate   = errors.New("the slot could not be kept: it was lost before the command was started")
	errRanOut    = errors.New("the slot could not be kept: golock was held up for longer than the lease lasted")
)

// guard gives the guard for a run, not yet raised; nil if it has none.
func (r *Run) guard(cmd *command) *guard {
	if !r.Store.Traits().Leased || r.OnlyWarn {
		return nil
	}
	return &guard{run: r, cmd: cmd, env: cmd.env, socket: -1}
}

// raise starts the guard. What it needs for the command is there before the
// slot is, and takes its time while the store is being asked.
func (g *guard) raise() error {
	if g == nil || g.pid != 0 {
		return nil
	}
	r := g.run
	pair, err := socketPair()
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	theirs, err := high(pair[1])
	if err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return fmt.Errorf("fcntl: %w", err)
	}
	defer unix.Close(theirs)
	becomeSubreaper() // before there is anybody to miss

	group := 0
	if r.Terminal {
		group = unix.Getpgrp()
	}
	warden := &command{
		path: "/proc/self/exe", env: g.env, inherit: []int{theirs},
		argv: append([]string{GuardName, strconv.Itoa(theirs), strconv.Itoa(group)}, g.cmd.argv...),
	}
	// Not in golock's group, whose other members are fair game to whoever
	// stops or kills the job. But where nobody would continue a stopped job,
	// the kernel must still see that: by a child in the group whose parent is
	// in another one of the session it would take it for looked after
	// (setpgid(2), "orphaned process group").
	sys := &syscall.SysProcAttr{Setpgid: !r.Terminal || lookedAfter()}
	r.Relay.AsCaller(func() { g.pid, err = warden.spawn(sys) })
	if err != nil {
		unix.Close(pair[0])
		return fmt.Errorf("starting the guard: %w", err)
	}
	g.socket = pair[0]
	g.introduce()
	return nil
}

// introduce tells the guard what it can give back.
func (g *guard) introduce() {
	if g != nil {
		g.tell(message{kind: toAttach, texts: []string{g.run.Address, g.run.Request.Ref.String()}})
	}
}

// lookedAfter reports whether golock's process group has somebody who would
// continue it: a parent in the same session outside of the group.
func lookedAfter() bool {
	session, _ := unix.Getsid(0)
	for pid := os.Getppid(); pid > 0; {
		if its, err := unix.Getsid(pid); err != nil || its != session {
			return false
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() {
			return err == nil
		}
		parent, ok := readProcess(pid)
		if !ok {
			return false
		}
		pid = parent.parent
	}
	return false
}

// tell sends a message. That the guard is gone is found out elsewhere.
func (g *guard) tell(m message) {
	if g != nil && g.socket >= 0 {
		_ = m.sendTo(g.socket)
	}
}

// start has the guard start the command, with what the store gave added to its
// environment. After an error no command is running.
func (g *guard) start(variables []string, k *keeper) (pid int, err error) {
	if err := g.raise(); err != nil {
		return 0, fmt.Errorf("%w: %w", errGuardGone, err)
	}
	until := k.killAt()
	order := message{kind: toStart, number: int64(until), texts: variables}
	err = order.sendTo(g.socket)
	if err == unix.EPIPE || err == unix.ECONNRESET { // it was killed while the slot was waited for, and has started nothing
		g.dismiss()
		if err := g.raise(); err != nil {
			return 0, fmt.Errorf("%w: %w", errGuardGone, err)
		}
		err = order.sendTo(g.socket)
	}
	switch err {
	case nil:
	case unix.EPIPE, unix.ECONNRESET:
		g.abandon()
		return 0, errGuardGone
	case unix.EMSGSIZE:
		return 0, g.cmd.problem(unix.E2BIG)
	default:
		return 0, g.cmd.problem(err)
	}
	for {
		m, err := receive(g.socket)
		switch {
		case err == unix.EAGAIN:
			left := until.Sub(k.clock())
			if left <= 0 {
				g.abandon()
				return 0, errGuardMute
			}
			ready := []unix.PollFd{{Fd: int32(g.socket), Events: unix.POLLIN}}
			ts := unix.NsecToTimespec(int64(min(left, muteLook)))
			if n, _ := unix.Ppoll(ready, &ts, nil); n == 0 {
				g.goOn()
			}
		case err != nil:
			g.abandon()
			return 0, errGuardGone
		case m.kind == nowStarted:
			return int(m.number), nil
		case m.kind == nowFailed:
			return 0, g.cmd.problem(unix.Errno(m.number))
		}
	}
}

// muteLook is when golock looks what has become of a guard that does not answer.
const muteLook = 100 * time.Millisecond

// goOn continues a guard that somebody has stopped.
func (g *guard) goOn() {
	var info unix.Siginfo
	if unix.Waitid(unix.P_PID, g.pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil) == nil && info.Signo != 0 {
		_ = unix.Kill(g.pid, unix.SIGCONT) // golock's own child and not collected
	}
}

// dismiss ends the guard. It has nothing to look after any more: what the
// command left running is the user's.
func (g *guard) dismiss() {
	if g == nil || g.pid == 0 {
		return
	}
	_ = unix.Kill(g.pid, unix.SIGKILL) // golock's own child and not collected
	for {
		if _, err := syscall.Wait4(g.pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	g.hangUp()
	g.pid = 0
}

// abandon ends a guard that may have started something, and that too.
func (g *guard) abandon() {
	g.dismiss()
	endDescendants(g.run.strangers, func(int, syscall.WaitStatus) {}, time.Sleep)
}

func (g *guard) hangUp() {
	if g.socket >= 0 {
		unix.Close(g.socket)
		g.socket = -1
	}
}

// collect takes in what the guard has told and, when that is gone, what golock
// has inherited.
func (g *guard) collect(s *supervisor) {
	for g.socket >= 0 {
		m, err := receive(g.socket)
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			s.Relay.Unwatch(g.socket)
			g.hangUp()
			g.missed(s)
			break
		}
		switch m.kind {
		case nowStopped:
			s.stopped()
		case nowEnded:
			g.heard, s.ended, s.status = true, true, syscall.WaitStatus(m.number)
			if len(m.texts) > 0 && s.lost == nil {
				s.lost, s.wide, s.ending, s.killing = errRanOut, true, true, true
			}
			g.tell(message{kind: toCollect})
		case nowAlone:
			s.alone = true
		}
	}
	if !g.reap(s) && g.socket < 0 {
		_ = unix.Kill(g.pid, unix.SIGKILL) // it has hung up and lives: no guard any more
	}
}

// reap collects golock's own children: the guard, and what comes to golock when
// that is gone. It reports whether the guard is.
func (g *guard) reap(s *supervisor) (gone bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || pid <= 0:
			if g.pid == 0 {
				s.alone = err == unix.ECHILD || s.onlyStrangers()
			}
			return g.pid == 0
		case pid == g.pid && ws.Stopped():
			_ = unix.Kill(g.pid, unix.SIGCONT) // it could neither protect nor tell anything
		case ws.Stopped():
		case pid == g.pid:
			g.pid = 0
			g.missed(s)
		case pid == s.pid && !s.ended: // golock's own child now
			s.ended, s.status = true, ws
			g.missed(s)
		}
	}
}

// missed ends what nobody guards any more. A command whose end the guard has
// told needs none.
func (g *guard) missed(s *supervisor) {
	if !g.heard || s.Tree || s.wide {
		s.unguarded(fmt.Errorf("%w: the command was stopped", errGuardGone))
	}
}

func (g *guard) signal(s *supervisor, sig syscall.Signal) { s.send(sig) }

// root is the process whose descendants are the command and what it started.
func (g *guard) root() int {
	if g.pid != 0 {
		return g.pid
	}
	return unix.Getpid()
}
