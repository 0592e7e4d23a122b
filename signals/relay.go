package signals

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// standard are the signals that golock passes on, without the real-time ones.
// Not among them: KILL and STOP, which nobody can catch; CHLD, PIPE, URG and
// PROF, which are about golock itself (the Go runtime sends itself URG); and
// the faults ILL TRAP BUS FPE SEGV SYS.
func standard() []syscall.Signal {
	return []syscall.Signal{
		unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGABRT, unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM, unix.SIGIO, unix.SIGPWR,
	}
}

// jobControl are those that a shell and the kernel use to steer the jobs of a
// terminal.
func jobControl() []syscall.Signal {
	return []syscall.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH}
}

// Forwarded reports whether golock passes sig on when it gets it.
func Forwarded(sig syscall.Signal) bool {
	return slices.Contains(standard(), sig) || slices.Contains(jobControl(), sig) || (sig > rtMin && sig <= rtMax)
}

// FromTerminal reports whether sig reaches every process of a terminal's job
// by itself, from the kernel or the shell.
func FromTerminal(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGHUP || slices.Contains(jobControl(), sig)
}

// EndsWaiting reports whether sig tells a golock that still waits to give up.
func EndsWaiting(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGQUIT
}

// Relay is the one queue of events of this process: the signals it gets, in
// their order, among them CHLD, and wake-ups from its own goroutines. It is a
// pipe (the "self-pipe" of D. J. Bernstein): a signal's handler writes its
// number there.
//
// There is one Relay in a process; Next belongs to one goroutine, Wake to all.
type Relay struct {
	terminal bool
	caught   bool
	list     []syscall.Signal // those that are caught
	blocked  uint64           // of these: those that the caller had blocked
	read     int
	write    int
	watched  []int
	buffer   [64]byte
	have     []byte // of buffer, not yet given out
}

// NewRelay makes a relay that catches nothing yet. With terminal, the job
// control signals will keep their default action, so that golock stops and
// continues with its job.
func NewRelay(terminal bool) (*Relay, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	// A handler must never wait. 64 Ki signals have room.
	if err := unix.SetNonblock(ends[1], true); err != nil {
		return nil, fmt.Errorf("fcntl: %w", err)
	}
	return &Relay{terminal: terminal, read: ends[0], write: ends[1]}, nil
}

// Stay keeps this goroutine in its thread until Catch. It is for the begin of
// main, whose thread is the process's first: the kernel gives that one a signal
// while it can. The Go runtime may need a moment to die of a signal that came
// before Catch; a main that had gone on in another thread by then could have
// started a command, and would leave it behind.
func Stay() { runtime.LockOSThread() }

// Catch starts to catch signals; only the first call does anything. Signals
// that the caller had ignored stay ignored, for the command to inherit.
//
// SIGPIPE is caught and forgotten: a closed standard error must not end golock.
// (Ignoring it would be inherited by the command.)
func (r *Relay) Catch() {
	if r.caught {
		return
	}
	r.caught = true
	list := append(standard(), unix.SIGCHLD, unix.SIGPIPE)
	if !r.terminal {
		list = append(list, jobControl()...)
	}
	for sig := syscall.Signal(rtMin + 1); sig <= rtMax; sig++ {
		list = append(list, sig)
	}
	r.list = slices.DeleteFunc(list, ignored)
	r.catch(r.list)
	runtime.UnlockOSThread() // see Stay
	r.unblock(r.list)
}

// Yield gives the signals that are caught their default action back, for a
// process that becomes its command: what comes now does to it what it would do
// to the command. What came before is still to be had from Next.
func (r *Relay) Yield() {
	for _, sig := range r.list {
		sigaction(sig, &action{}, nil)
	}
}

// unblock lets signals through that the caller had blocked: golock has to hear
// of them, the command is to find them blocked. They are unblocked in this
// thread only, and the goroutine stays in it.
func (r *Relay) unblock(list []syscall.Signal) {
	var mask uint64
	for _, sig := range list {
		mask |= 1 << (sig - 1)
	}
	var now uint64
	sigprocmask(unix.SIG_BLOCK, nil, &now)
	if r.blocked = now & mask; r.blocked != 0 {
		runtime.LockOSThread()
		sigprocmask(unix.SIG_UNBLOCK, &r.blocked, nil)
	}
}

// AsCaller calls start with the caller's signals blocked again, for a command
// to inherit that. It must be called by the goroutine that called Catch.
func (r *Relay) AsCaller(start func()) {
	if r.blocked != 0 {
		sigprocmask(unix.SIG_BLOCK, &r.blocked, nil)
		defer sigprocmask(unix.SIG_UNBLOCK, &r.blocked, nil)
	}
	start()
}

// Next gives the next signal, or 0 for a wake-up. It waits for at most timeout
// (negative: for ever) and reports false if nothing came.
func (r *Relay) Next(timeout time.Duration) (syscall.Signal, bool) {
	until := time.Now().Add(timeout)
	for {
		for len(r.have) > 0 {
			sig := syscall.Signal(r.have[0])
			r.have = r.have[1:]
			if sig != unix.SIGPIPE {
				return sig, true
			}
		}
		if timeout >= 0 || len(r.watched) > 0 {
			switch r.await(timeout >= 0, until) {
			case nothing:
				return 0, false
			case other:
				return 0, true
			}
		}
		n, err := unix.Read(r.read, r.buffer[:])
		if err == nil {
			r.have = r.buffer[:n]
		}
	}
}

// Suspend stops this process after a stop signal came through Next, unless the
// CONT that takes it back has come already, and returns when the process was
// continued. (A CONT that comes between that look and the stop is lost: on a
// busy machine, one in a hundred of those that are sent right after the TSTP.)
func (r *Relay) Suspend() {
	runtime.LockOSThread() // which can take a while the first time
	defer runtime.UnlockOSThread()
	if sig, ok := r.peek(); !ok || sig != unix.SIGCONT {
		StopSelf(r.terminal)
	}
}

// peek gives what Next would give without waiting, and leaves it there. It
// passes over wake-ups.
func (r *Relay) peek() (syscall.Signal, bool) {
	for {
		sig, ok := r.Next(0)
		if !ok {
			return 0, false
		}
		if sig != 0 {
			r.have = append([]byte{byte(sig)}, r.have...)
			return sig, true
		}
	}
}

// Watch makes Next also return, as for a wake-up, while there is something to
// read from one of these descriptors. To read it is up to the caller of Next.
func (r *Relay) Watch(fds ...int) { r.watched = append(r.watched, fds...) }

// Unwatch ends that.
func (r *Relay) Unwatch(fds ...int) {
	r.watched = slices.DeleteFunc(r.watched, func(fd int) bool { return slices.Contains(fds, fd) })
}

// What await comes to.
type readiness int

const (
	nothing readiness = iota // in time
	own                      // the relay has something to read
	other                    // only something watched has
)

// await waits until there is something to read, or until.
func (r *Relay) await(limited bool, until time.Time) readiness {
	var few [4]unix.PollFd
	ready := append(few[:0], unix.PollFd{Fd: int32(r.read), Events: unix.POLLIN})
	for _, fd := range r.watched {
		ready = append(ready, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for {
		var ts *unix.Timespec
		if limited {
			left := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
			ts = &left
		}
		n, err := unix.Ppoll(ready, ts, nil)
		switch {
		case ready[0].Revents != 0:
			return own
		case n > 0:
			return other
		case limited && (err == nil || !time.Now().Before(until)):
			return nothing
		}
	}
}

// Wake makes Next return.
func (r *Relay) Wake() {
	for {
		_, err := unix.Write(r.write, []byte{0})
		if err != unix.EINTR {
			return
		}
	}
}

// CatchStop makes the terminal's stop signal come through Next, for a golock
// that waits: it must leave the queue before it stops. Undone by DropStop.
func (r *Relay) CatchStop() { r.catch(slices.DeleteFunc([]syscall.Signal{unix.SIGTSTP}, ignored)) }

// DropStop gives the stop signal its default action back.
func (r *Relay) DropStop() {
	if !ignored(unix.SIGTSTP) {
		sigaction(unix.SIGTSTP, &action{}, nil)
	}
}

// StopSelf stops this process and returns when it was continued. With a
// terminal it does so the way an uncaught SIGTSTP does: the kernel does not
// stop a process when nobody is left in its session to continue it.
func StopSelf(terminal bool) {
	// To this very thread, so that the signal has worked when Tgkill returns.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !terminal {
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
		return
	}
	if ignored(unix.SIGTSTP) {
		return
	}
	var caught action
	sigaction(unix.SIGTSTP, &action{}, &caught)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
	sigaction(unix.SIGTSTP, &caught, nil)
}

// ignored reports whether sig is ignored now. Of the signals that the caller
// had ignored, the Go runtime leaves HUP and INT, and those of job control, as
// they were; the others it has taken over before main starts, and nothing
// tells any more that they were ignored, and to ask costs a system call each.
func ignored(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
	default:
		return false
	}
	var now action
	return sigaction(sig, nil, &now) == 0 && now[0] == sigIgn
}

// Ignore makes a signal be ignored from now on, for a process that has nothing
// to pass it on to and ends soon. Children would inherit that.
func Ignore(sig syscall.Signal) { sigaction(sig, &action{sigIgn}, nil) }

const sigIgn = 1

// action is the kernel's struct sigaction with room to spare (rt_sigaction(2)):
// handler, flags, restorer and mask on 64-bit machines. All zero is the default
// action.
type action [16]uintptr

const setSize = 8 // bytes of a signal set, on all architectures but MIPS

func sigprocmask(how int, set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, uintptr(how), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}

func sigaction(sig syscall.Signal, set, old *action) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	return errno
}
