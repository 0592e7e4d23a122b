package runner

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/signals"
)

// warden is the guard itself, the process between golock and the command (see
// guard.go). One goroutine owns all of it, on a thread that lives as long as
// the process: the command is killed by the kernel when that thread ends
// (PR_SET_PDEATHSIG, prctl(2)).
//
// Every signal that can be caught is caught and forgotten. What golock's caller
// ignored or blocked has come through golock to the guard, and goes through it
// to the command in the same way.
type warden struct {
	relay  *signals.Relay
	ticker *ticker
	clock  locks.Clock
	socket int // to golock; -1: golock is gone
	cmd    *command
	group  int // of the command; 0: its own

	store string // what to give back
	lease string

	until locks.Instant // the deadline; 0: none
	pid   int           // of the command; 0: none, or collected
	told  bool          // that it has ended
	alone bool          // and that nothing is left
	stops int           // told since golock was last heard of
}

// mostStops bounds what a golock that does not listen is told, so that there is
// room for the rest.
const mostStops = 32

// Guard acts as the guard that its arguments describe and gives its exit code.
// attach opens a store. It refuses to act for anybody but a golock that is its
// parent.
func Guard(args []string, attach func(store string) (locks.Attacher, error)) error {
	runtime.LockOSThread()
	w, err := newWarden(args)
	if err != nil {
		return err
	}
	w.run()
	if w.socket >= 0 || w.store == "" {
		return nil
	}
	ref, err := locks.ParseRef(w.lease)
	if err != nil {
		return err
	}
	store, err := attach(w.store)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
	defer cancel()
	return store.Attach(ref).Release(ctx)
}

// ErrByHand says that somebody called the guard who has no use for one.
var ErrByHand = errors.New("a guard is started by golock run only")

func newWarden(args []string) (*warden, error) {
	if len(args) < 4 {
		return nil, ErrByHand
	}
	socket, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, ErrByHand
	}
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || (int(peer.Pid) != os.Getppid() && !hungUp(socket)) {
		return nil, ErrByHand
	}
	unix.CloseOnExec(socket)
	group, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, ErrByHand
	}
	w := &warden{clock: locks.BootTime, socket: socket, group: group, cmd: &command{argv: args[3:], env: os.Environ()}}
	if w.relay, err = signals.NewRelay(false); err != nil {
		return nil, err
	}
	w.relay.Catch()
	if w.ticker, err = newTicker(); err != nil {
		return nil, err
	}
	w.relay.Watch(socket, w.ticker.fd)
	becomeSubreaper()
	name := append([]byte(GuardName), 0)
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	w.cmd.path, _ = find(w.cmd.argv[0])
	return w, nil
}

// hungUp reports whether the other side is gone: a golock that was killed just
// now.
func hungUp(socket int) bool {
	ready := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
	_, err := unix.Poll(ready, 0)
	return err == nil && ready[0].Revents&unix.POLLHUP != 0
}

// run returns when golock is gone and nothing is left of the command.
func (w *warden) run() {
	for {
		w.listen()
		if w.due() {
			w.endAll()
		}
		if w.socket < 0 {
			return
		}
		w.collect()
		w.ticker.set(w.until)
		w.relay.Next(-1)
	}
}

// due says whether the command must be dead: golock is gone, or has not told of
// a later deadline in time.
func (w *warden) due() bool { return w.socket < 0 || (w.until != 0 && w.clock() >= w.until) }

// listen does what golock has asked for.
func (w *warden) listen() {
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
		w.stops = 0
		switch m.kind {
		case toAttach:
			if len(m.texts) == 2 {
				w.store, w.lease = m.texts[0], m.texts[1]
			}
		case toStart:
			w.until = locks.Instant(m.number)
			w.start(m.texts)
		case toDeadline:
			w.until = locks.Instant(m.number)
		case toCollect:
			if w.told {
				_, _ = syscall.Wait4(w.pid, nil, 0, nil)
				w.pid, w.told = 0, false
			}
		}
	}
}

func (w *warden) tell(k kind, number int64, texts ...string) {
	if w.socket >= 0 {
		_ = message{kind: k, number: number, texts: texts}.sendTo(w.socket)
	}
}

// start starts the command, unless it is too late for that.
func (w *warden) start(variables []string) {
	w.ticker.set(w.until)
	if w.clock() >= w.until {
		w.tell(nowFailed, int64(unix.ETIME))
		return
	}
	w.cmd.env = append(w.cmd.env, variables...)
	sys := &syscall.SysProcAttr{Setpgid: true, Pgid: w.group, Pdeathsig: unix.SIGKILL}
	var err error
	w.relay.AsCaller(func() { w.pid, err = w.cmd.spawn(sys) })
	if err != nil {
		errno := unix.EINVAL
		errors.As(err, &errno)
		w.tell(nowFailed, int64(errno))
		return
	}
	w.tell(nowStarted, int64(w.pid))
	w.cmd = nil
	forgetInherited()
}

// forgetInherited lets go of what was there for the command: a pipe must not
// stay open because of the guard.
func forgetInherited() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC)
	}
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	var names []string
	buffer := make([]byte, 1024)
	for {
		n, err := unix.ReadDirent(dir, buffer)
		if n <= 0 || err != nil {
			break
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// All that the guard has itself is close-on-exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	unix.Close(null)
}

// collect tells golock what has become of the command and collects orphans. The
// command itself stays a zombie until golock asks for its end.
func (w *warden) collect() {
	for w.pid != 0 && !w.told {
		var info unix.Siginfo
		if unix.Waitid(unix.P_PID, w.pid, &info, unix.WSTOPPED|unix.WNOHANG, nil) != nil || info.Signo == 0 {
			break
		}
		if w.stops++; w.stops <= mostStops {
			w.tell(nowStopped, 0)
		}
	}
	for !w.told && !w.alone {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		switch pid := childOf(&info).pid; {
		case err == unix.EINTR:
		case err == unix.ECHILD:
			if w.cmd == nil && w.pid == 0 {
				w.alone = true
				w.tell(nowAlone, 0)
			}
			return
		case err != nil || info.Signo == 0:
			return
		case int(pid) == w.pid:
			w.told = true
			w.tell(nowEnded, int64(statusOf(&info)))
		default:
			_, _ = syscall.Wait4(int(pid), nil, 0, nil)
		}
	}
}

// endAll kills all that descends from the command. It returns when nothing is
// left.
func (w *warden) endAll() {
	w.killCommand()
	w.relay.Unwatch(w.socket, w.ticker.fd) // what golock has to say can wait
	defer w.relay.Watch(w.socket, w.ticker.fd)
	endDescendants(nil,
		func(pid int, ws syscall.WaitStatus) {
			if pid == w.pid {
				if !w.told {
					w.tell(nowEnded, int64(ws), "killed")
				}
				w.pid, w.told = 0, false
			}
		},
		func(d time.Duration) { w.relay.Next(d) },
	)
	w.until = 0
	if w.cmd == nil && !w.alone {
		w.alone = true
		w.tell(nowAlone, 0)
	}
}

// killCommand kills what can be killed without a search: at the deadline many
// guards may have to search at the same time.
func (w *warden) killCommand() {
	switch {
	case w.pid == 0:
	case w.group == 0:
		_ = unix.Kill(-w.pid, unix.SIGKILL)
	default:
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
}

// child is what waitid(2) says about one in a siginfo.
type child struct{ pid, uid, status int32 }

func childOf(info *unix.Siginfo) *child {
	const after = 2*4 + unsafe.Sizeof(uintptr(0)) // signo, errno and code, padded
	return (*child)(unsafe.Add(unsafe.Pointer(info), after))
}

// statusOf is the wait status, as wait4(2) would give it.
func statusOf(info *unix.Siginfo) syscall.WaitStatus {
	const exited, dumped = 1, 3 // CLD_EXITED, CLD_DUMPED
	status := syscall.WaitStatus(childOf(info).status)
	switch info.Code {
	case exited:
		return status << 8
	case dumped:
		return status | 0x80
	}
	return status
}
