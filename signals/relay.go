package signals

import (
	"fmt"
	"math"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/entry"
	"golock/internal/spawn"
)

// jobControl are the signals by which shell and kernel control the jobs of a terminal.
func jobControl() []syscall.Signal {
	return []syscall.Signal{unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGWINCH}
}

// Forwarded reports whether golock passes sig on when it gets it. It cannot catch KILL and STOP;
// CHLD, PIPE, URG and PROF concern golock itself (the Go runtime sends itself URG).
func Forwarded(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGPROF:
		return false
	}
	return sig > 0 && sig <= rtMax && !IsFault(sig) && !isOfLibraries(sig)
}

// isOfLibraries reports whether sig is one of the real-time signals that the C libraries keep for
// themselves (glibc the first two, musl three). They do nothing to golock.
func isOfLibraries(sig syscall.Signal) bool { return sig >= 32 && sig <= rtMin }

// FromTerminal reports whether kernel and shell send sig to every process of a terminal's job.
func FromTerminal(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGHUP || slices.Contains(jobControl(), sig)
}

// AsksToStop reports whether sig is one by which people and service managers end a program.
func AsksToStop(sig syscall.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGQUIT
}

// EndsWaiting reports whether sig ends a golock that still waits, as it ends a program by default
// (signal(7)).
func EndsWaiting(sig syscall.Signal) bool {
	if IsFault(sig) || sig == unix.SIGPIPE || sig == unix.SIGPROF {
		return true
	}
	return Forwarded(sig) && !slices.Contains(jobControl(), sig)
}

// faults are the signals that the kernel sends for a fault of the process itself.
func faults() []syscall.Signal {
	return []syscall.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS}
}

// isOwn reports whether golock itself may cause sig, by a write or the processor time that it uses.
func isOwn(sig syscall.Signal) bool {
	return sig == unix.SIGPIPE || sig == unix.SIGXCPU || sig == unix.SIGXFSZ
}

// IsFault reports whether sig stands for a fault. Next gives it only if another process sent it.
func IsFault(sig syscall.Signal) bool { return slices.Contains(faults(), sig) }

// Relay is the one queue of events of this process: its signals in order, CHLD included, and
// wake-ups by its own goroutines. It is a pipe (the "self-pipe" of D. J. Bernstein) into which the
// signal handler writes the number of the signal.
//
// There is one Relay in a process. Next belongs to one goroutine; all may call Wake.
type Relay struct {
	terminal bool
	list     []syscall.Signal // the caught ones
	ignored  []syscall.Signal // by the caller, and would be passed on
	passing  bool             // the ignored ones are caught too: see CatchIgnored
	blocked  uint64           // by the caller
	read     int
	write    int
	timer    int   // a descriptor
	wakeAt   int64 // for which it is set; 0: it is not

	timerIsRefused bool // it could not be set
	watched        []int
	buffer         [64]byte
	unread         []byte // of buffer
}

// NewRelay makes a relay that catches nothing yet. With terminal, the job control signals keep
// their default action, so that golock stops and continues with its job.
func NewRelay(terminal bool) (*Relay, error) {
	var ends [2]int
	// A handler must never wait. There is room for 64 Ki signals.
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	// Where a seccomp profile refuses write(2), signals and wake-ups would be lost.
	if _, err := unix.Write(ends[1], nil); err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &Relay{terminal: terminal, read: ends[0], write: ends[1], timer: timer}, nil
}

// Stay keeps main in the first thread of the process until Catch. The kernel prefers that thread
// for signals. The Go runtime takes a moment to die of a signal that came before Catch: in another
// thread main could start a command meanwhile.
func Stay() { runtime.LockOSThread() }

// Catch starts to catch signals; it is called once. Signals that the caller had ignored stay
// ignored, for the command to inherit.
//
// SIGPIPE is caught, not ignored, which the command would inherit: a closed standard error must not
// end golock. Faults, PIPE, XCPU and XFSZ of golock itself do not come through Next.
func (r *Relay) Catch() {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		passedOn := Forwarded(sig) && !(r.terminal && slices.Contains(jobControl(), sig))
		switch {
		case ignored(sig):
			ignoreAll([]syscall.Signal{sig})
			if passedOn {
				r.ignored = append(r.ignored, sig)
			}
		case passedOn, EndsWaiting(sig) && !IsFault(sig), isOfLibraries(sig), sig == unix.SIGCHLD:
			r.list = append(r.list, sig)
		}
	}
	r.catch(r.list)
	r.catchFaults()
	r.unblock()
	runtime.UnlockOSThread() // see Stay
}

// CatchIgnored also catches the signals that the caller had ignored and that golock passes on: the
// command may have a handler for one. A golock that waits ignores them.
func (r *Relay) CatchIgnored() {
	r.catch(r.ignored)
	r.passing = true
}

// Ignored reports whether the caller had ignored sig.
func (r *Relay) Ignored(sig syscall.Signal) bool { return slices.Contains(r.ignored, sig) }

// Yield restores the default action of the caught signals, for a process that becomes its command.
// Next still gives those that came before.
func (r *Relay) Yield() {
	for _, sig := range r.list {
		if sig == unix.SIGPIPE { // it may be pending in some thread: to ignore it discards it
			sigaction(sig, &action{sigIgn}, nil)
		}
		sigaction(sig, &action{}, nil)
	}
	settle()
}

// unblock unblocks, in the first thread, which lives as long as the process, what package entry has
// blocked, and the caught signals that the caller had blocked.
func (r *Relay) unblock() {
	var now uint64
	sigprocmask(unix.SIG_BLOCK, nil, &now)
	r.blocked = now
	if mask, known := entry.Mask(); known {
		r.blocked = mask
	}
	mask := r.blocked
	for _, sig := range slices.Concat(r.list, r.ignored) {
		mask &^= 1 << (sig - 1)
	}
	if mask != now {
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
}

// AsCaller calls start with the signals blocked and ignored that the caller had blocked and ignored,
// for a command to inherit that. Where package spawn sees to the ignored ones, they stay caught.
// Elsewhere one that comes meanwhile is lost, and so it would be without golock if the command has no
// handler yet.
func (r *Relay) AsCaller(start func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var now uint64
	sigprocmask(unix.SIG_SETMASK, &r.blocked, &now)
	defer sigprocmask(unix.SIG_SETMASK, &now, nil)
	changed := r.restoreLibraries()
	if _, known := entry.Ignored(); r.passing && !known {
		ignoreAll(r.ignored)
		changed = append(changed, r.ignored...)
	}
	defer r.catch(changed)
	start()
}

// ignoreAll ignores signals, in children too: the Go runtime restores the default action in children
// of those that it may handle, unless it is told.
func ignoreAll(list []syscall.Signal) {
	for _, sig := range list {
		signal.Ignore(sig)
	}
}

// Next gives the next signal, or 0 for a wake-up. It waits at most timeout (negative: for ever) and
// reports false if nothing came.
func (r *Relay) Next(timeout time.Duration) (syscall.Signal, bool) {
	if timeout < 0 || timeout > maxTimeout {
		timeout = maxTimeout
	}
	until := time.Now().Add(timeout)
	look := until
	if r.timerIsRefused { // the caller looks at the clock itself
		look = time.Now().Add(min(timeout, RefusedPause))
	}
	for {
		for len(r.unread) > 0 {
			sig := syscall.Signal(r.unread[0])
			r.unread = r.unread[1:]
			if !isOfLibraries(sig) {
				return sig, true
			}
		}
		var few [4]unix.PollFd
		fds := append(few[:0], unix.PollFd{Fd: int32(r.read), Events: unix.POLLIN}, unix.PollFd{Fd: int32(r.timer), Events: unix.POLLIN})
		for _, fd := range r.watched {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		left := unix.NsecToTimespec(int64(max(time.Until(look), 0)))
		n, err := unix.Ppoll(fds, &left, nil)
		isRefused := err != nil && err != unix.EINTR
		if isRefused {
			time.Sleep(min(time.Until(until), RefusedPause))
		}
		if fds[1].Revents != 0 {
			r.WakeAt(0)
		}
		if isRefused || fds[0].Revents != 0 {
			if n, err := unix.Read(r.read, r.buffer[:]); err == nil {
				r.unread = r.buffer[:n]
				continue
			}
		}
		switch {
		case n > 0, err == nil && look.Before(until):
			return 0, true
		case !time.Now().Before(until), err == nil:
			return 0, false
		case isRefused: // the caller looks at everything
			return 0, true
		}
	}
}

// RefusedPause is the time between two looks where the kernel or a seccomp profile refuses ppoll(2) or
// timerfd_settime(2).
const RefusedPause = 50 * time.Millisecond

// Suspend stops this process after a stop signal came through Next, and returns when the process is
// continued. If the next signal is CONT, it does not stop. Without a terminal a CONT between that
// check and the stop is lost: on a busy machine one in a hundred that follow a TSTP at once.
func (r *Relay) Suspend() {
	runtime.LockOSThread() // before the check: it can take a while the first time
	defer runtime.UnlockOSThread()
	if r.terminal {
		StopJob(func() bool { return true })
		return
	}
	watched := r.watched
	r.watched = nil // one that stays readable would wake it for ever
	sig, ok := r.Next(0)
	for ok && sig == 0 { // a wake-up: the caller looks at everything anyway
		sig, ok = r.Next(0)
	}
	r.watched = watched
	if ok {
		r.unread = append([]byte{byte(sig)}, r.unread...)
	}
	if sig != unix.SIGCONT {
		// To this very thread, so that the signal has worked when Tgkill returns.
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
	}
}

// Watch makes Next also return, as for a wake-up, while one of these descriptors is readable. The
// caller of Next reads from it.
func (r *Relay) Watch(fds ...int) { r.watched = append(r.watched, fds...) }

// Unwatch undoes Watch.
func (r *Relay) Unwatch(fds ...int) {
	r.watched = slices.DeleteFunc(r.watched, func(fd int) bool { return slices.Contains(fds, fd) })
}

// maxTimeout is what a timespec holds where its seconds have 32 bits: 68 years.
const maxTimeout = math.MaxInt32 * time.Second

// WakeAt makes Next return, as for a wake-up, at a moment of CLOCK_BOOTTIME in nanoseconds; 0:
// never. Go's timers and the timeouts of system calls stand still while the machine is suspended.
func (r *Relay) WakeAt(at int64) {
	if at == r.wakeAt {
		return
	}
	r.wakeAt = at
	spec := &unix.ItimerSpec{}
	if at != 0 {
		spec.Value = unix.NsecToTimespec(min(max(at, 1), int64(maxTimeout)))
	}
	err := unix.TimerfdSettime(r.timer, unix.TFD_TIMER_ABSTIME, spec, nil)
	r.timerIsRefused = err != nil
	if r.timerIsRefused {
		r.wakeAt = -1 // the caller of Next sets it again
	}
}

// Wake makes Next return.
func (r *Relay) Wake() { r.put(0) }

// put writes the number of a signal into the pipe, or 0.
func (r *Relay) put(number byte) {
	_, _ = eintr.Get(func() (int, error) { return unix.Write(r.write, []byte{number}) })
}

// CatchStop makes the terminal's stop signal come through Next: a golock that waits must leave the
// queue before it stops. DropStop undoes it.
func (r *Relay) CatchStop() { r.catch(slices.DeleteFunc([]syscall.Signal{unix.SIGTSTP}, ignored)) }

// DropStop restores the default action of the stop signal.
func (r *Relay) DropStop() {
	if !ignored(unix.SIGTSTP) {
		sigaction(unix.SIGTSTP, &action{}, nil)
	}
}

// StopJob stops this process as an uncaught SIGTSTP does, if still reports true, and returns when
// it is continued. The kernel does not stop it if nobody in the session could continue it.
//
// The signal is pending while still is called: a SIGCONT that comes meanwhile discards it
// (signal(7)). Otherwise a job that was stopped and continued in between would stop once more.
func StopJob(still func() bool) {
	if ignored(unix.SIGTSTP) {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var caught action
	sigaction(unix.SIGTSTP, &action{}, &caught)
	defer sigaction(unix.SIGTSTP, &caught, nil)
	var mask, before uint64 = 1 << (unix.SIGTSTP - 1), 0
	sigprocmask(unix.SIG_BLOCK, &mask, &before)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGTSTP)
	if !still() {
		sigaction(unix.SIGTSTP, &action{sigIgn}, nil) // discards it
		sigaction(unix.SIGTSTP, &action{}, nil)
	}
	sigprocmask(unix.SIG_UNBLOCK, &mask, nil) // stops here
	sigprocmask(unix.SIG_SETMASK, &before, nil)
}

// ignored reports whether the caller ignores sig and golock leaves it so: golock needs CHLD, and
// the runtime needs the faults. A plain go build knows it of HUP, INT and the signals of job
// control only: the Go runtime takes over the others before main starts.
func ignored(sig syscall.Signal) bool {
	if set, known := entry.Ignored(); known {
		return set&(1<<(sig-1)) != 0 && sig != unix.SIGCHLD && !IsFault(sig)
	}
	known := []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	var now action
	return slices.Contains(known, sig) && sigaction(sig, nil, &now) == 0 && now[0] == sigIgn
}

// Exec becomes another program, with the signals as the caller left them. It is called before
// Catch, and returns only if it fails.
//
// It delivers the signals that package entry has blocked, with their default action: the Go
// runtime's handlers would drop most of them.
func Exec(path string, argv, env []string) error {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		var now action
		if !IsFault(sig) && sigaction(sig, nil, &now) == 0 && now[0] != sigIgn {
			sigaction(sig, &action{}, nil)
		}
	}
	if mask, known := entry.Mask(); known {
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
	return spawn.Exec(path, argv, env)
}

// Ignore ignores a signal from now on, for a process that starts no command: children inherit that.
func Ignore(sig syscall.Signal) { sigaction(sig, &action{sigIgn}, nil) }

const sigIgn = 1

// action is the kernel's struct sigaction with room to spare (rt_sigaction(2)): handler, flags,
// restorer and mask on 64-bit machines. All zero is the default action.
type action [16]uintptr

const setSize = 8 // bytes of a signal set, on all architectures but MIPS

func sigprocmask(how int, set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, uintptr(how), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}

func sigaction(sig syscall.Signal, set, old *action) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
	return errno
}
