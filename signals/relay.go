package signals

import (
	"fmt"
	"math"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/entry"
)

// Relay is the one queue of events of this process: its signals in order, CHLD included, and
// wake-ups by its own goroutines. It is a pipe (the "self-pipe" of D. J. Bernstein) into which the
// signal handler writes the number of the signal.
//
// There is one Relay in a process. Next belongs to one goroutine; all may call Wake.
type Relay struct {
	terminal   bool             // golock has a terminal: job control signals keep their default action
	caught     []syscall.Signal // the signals that Catch catches
	ignored    []syscall.Signal // signals that the caller ignored and that golock would pass on
	callerMask uint64           // the signals that the caller had blocked
	read       int              // the descriptor of the end of the pipe from which Next reads
	write      int              // the descriptor of the other end

	catchesIgnored bool // CatchIgnored was called

	timer          int   // the descriptor of a timer
	wakeAt         int64 // when the timer expires, CLOCK_BOOTTIME in nanoseconds; 0 if it is not set
	timerIsRefused bool  // the kernel refused to set the timer

	watched []int    // descriptors that also make Next return
	buffer  [64]byte // bytes read from the pipe
	unread  []byte   // the part of buffer that Next has not yet given
}

// NoTerminal is the argument of NewRelay in a process without a controlling terminal.
const NoTerminal = false

// NewRelay makes a relay that catches no signals yet. With terminal, the job control signals keep
// their default action, so that golock stops and continues with its job.
func NewRelay(terminal bool) (*Relay, error) {
	var ends [2]int
	// The pipe does not block, because a handler must never wait. It has room for 64 Ki signals.
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

// Stay keeps main in the first thread of the process until Catch. The kernel delivers signals to that
// thread if it can. The Go runtime takes a moment to die of a signal that comes before Catch; if main
// ran in another thread, it could start a command meanwhile.
func Stay() { runtime.LockOSThread() }

// Catch starts to catch signals; it is called once. Signals that the caller had ignored stay
// ignored, for the command to inherit.
//
// Catch catches SIGPIPE, because a closed standard error must not end golock, and because the command
// would inherit an ignored SIGPIPE. Next does not give faults, PIPE, XCPU and XFSZ that golock itself
// has caused.
func (r *Relay) Catch() {
	for sig := syscall.Signal(1); sig <= rtMax; sig++ {
		isPassedOn := Forwarded(sig) && !(r.terminal && slices.Contains(jobControl(), sig))
		switch {
		case ignored(sig):
			ignoreAll([]syscall.Signal{sig})
			if isPassedOn {
				r.ignored = append(r.ignored, sig)
			}
		case isPassedOn, EndsWaiting(sig) && !IsFault(sig), isOfLibraries(sig), sig == unix.SIGCHLD:
			r.caught = append(r.caught, sig)
		}
	}
	r.catch(r.caught)
	r.catchFaults()
	r.unblock()
	runtime.UnlockOSThread() // see Stay
}

// CatchIgnored also catches the signals that the caller had ignored and that golock passes on,
// because the command may install a handler for such a signal. A golock that waits ignores them.
func (r *Relay) CatchIgnored() {
	r.catch(r.ignored)
	r.catchesIgnored = true
}

// Ignored reports whether the caller had ignored sig.
func (r *Relay) Ignored(sig syscall.Signal) bool { return slices.Contains(r.ignored, sig) }

// Yield restores the default action of the caught signals, for a process that becomes its command.
// Next still gives the signals that came before.
func (r *Relay) Yield() {
	for _, sig := range r.caught {
		if sig == unix.SIGPIPE { // ignoring it discards a SIGPIPE that is pending in some thread
			sigaction(sig, &action{sigIgn}, nil)
		}
		sigaction(sig, &action{}, nil)
	}
	settle()
}

// unblock unblocks the signals that package entry has blocked, and the caught signals that the caller
// had blocked. It does so in the first thread, which lives as long as the process.
func (r *Relay) unblock() {
	var currentMask uint64
	sigprocmask(unix.SIG_BLOCK, nil, &currentMask)
	r.callerMask = currentMask
	if mask, known := entry.Mask(); known {
		r.callerMask = mask
	}
	mask := r.callerMask
	for _, sig := range slices.Concat(r.caught, r.ignored) {
		mask &^= 1 << (sig - 1)
	}
	if mask != currentMask {
		sigprocmask(unix.SIG_SETMASK, &mask, nil)
	}
}

// AsCaller calls start while this thread blocks and ignores what the caller had blocked and ignored,
// so that the command inherits that. Where package spawn restores the ignored signals in the new
// process, AsCaller leaves them caught. Elsewhere a signal that AsCaller ignores is lost while start
// runs. Without golock it would be lost too, as long as the command has no handler.
func (r *Relay) AsCaller(start func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var currentMask uint64
	sigprocmask(unix.SIG_SETMASK, &r.callerMask, &currentMask)
	defer sigprocmask(unix.SIG_SETMASK, &currentMask, nil)
	changed := r.restoreLibraries()
	_, spawnIgnores := entry.Ignored()
	if r.catchesIgnored && !spawnIgnores {
		ignoreAll(r.ignored)
		changed = append(changed, r.ignored...)
	}
	defer r.catch(changed)
	start()
}

// ignoreAll ignores signals in this process and in its children. The Go runtime gives children the
// default action of all signals that it handles, except those that signal.Ignore has named.
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
	deadline := time.Now().Add(timeout)
	pollEnd := deadline
	if r.timerIsRefused { // Next returns now and then, so that the caller can read the clock
		pollEnd = time.Now().Add(min(timeout, RefusedPause))
	}
	for {
		if sig, isUnread := r.takeUnread(); isUnread {
			return sig, true
		}
		ready, err := r.poll(pollEnd)
		isRefused := err != nil && err != unix.EINTR
		if isRefused {
			time.Sleep(min(time.Until(deadline), RefusedPause))
		}
		if ready.timer {
			r.WakeAt(0)
		}
		if isRefused || ready.pipe {
			n, err := unix.Read(r.read, r.buffer[:])
			if err == nil {
				r.unread = r.buffer[:n]
				continue
			}
		}
		isOver := !time.Now().Before(deadline)
		switch {
		case ready.any:
			return 0, true
		case err == nil: // pollEnd has come
			return 0, pollEnd.Before(deadline)
		case isOver:
			return 0, false
		case isRefused: // a wake-up makes the caller check everything
			return 0, true
		}
	}
}

// takeUnread takes the next byte that was read from the pipe, and skips the signals of the C libraries.
func (r *Relay) takeUnread() (sig syscall.Signal, isUnread bool) {
	for len(r.unread) > 0 {
		sig = syscall.Signal(r.unread[0])
		r.unread = r.unread[1:]
		if !isOfLibraries(sig) {
			return sig, true
		}
	}
	return 0, false
}

// readiness says which descriptors can be read.
type readiness struct {
	pipe  bool // the pipe has a signal or a wake-up
	timer bool // the timer has expired
	any   bool // the pipe, the timer, or a watched descriptor
}

// poll waits until a descriptor can be read, until end at the latest.
func (r *Relay) poll(end time.Time) (readiness, error) {
	var room [4]unix.PollFd // keeps the usual number of descriptors off the heap
	fds := append(room[:0], unix.PollFd{Fd: int32(r.read), Events: unix.POLLIN}, unix.PollFd{Fd: int32(r.timer), Events: unix.POLLIN})
	for _, fd := range r.watched {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	remaining := unix.NsecToTimespec(int64(max(time.Until(end), 0)))
	readable, err := unix.Ppoll(fds, &remaining, nil)
	return readiness{pipe: fds[0].Revents != 0, timer: fds[1].Revents != 0, any: readable > 0}, err
}

// RefusedPause is the time between two checks for events where the kernel or a seccomp profile refuses ppoll(2) or
// timerfd_settime(2).
const RefusedPause = 50 * time.Millisecond

// Suspend stops this process after Next gave a stop signal, and returns when the process is
// continued. If the next signal is CONT, it does not stop. Without a terminal a CONT between that
// check and the stop is lost. On a busy machine that happens to one in a hundred CONTs that follow a
// TSTP at once.
func (r *Relay) Suspend() {
	runtime.LockOSThread() // first, because the first call can take long, and a CONT after the check is lost
	defer runtime.UnlockOSThread()
	if r.terminal {
		StopJob(func() bool { return true })
		return
	}
	watched := r.watched
	r.watched = nil // a descriptor that stays readable would make this loop endless
	sig, hasCome := r.Next(0)
	for hasCome && sig == 0 { // The caller checks everything after Suspend, so a wake-up may be dropped.
		sig, hasCome = r.Next(0)
	}
	r.watched = watched
	if hasCome {
		r.unread = append([]byte{byte(sig)}, r.unread...)
	}
	if sig != unix.SIGCONT {
		// A signal to this thread acts before Tgkill returns.
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
	}
}

// Watch makes Next also return, as for a wake-up, while one of these descriptors is readable. The
// caller of Next reads from the descriptor.
func (r *Relay) Watch(fds ...int) { r.watched = append(r.watched, fds...) }

// Unwatch undoes Watch.
func (r *Relay) Unwatch(fds ...int) {
	r.watched = slices.DeleteFunc(r.watched, func(fd int) bool { return slices.Contains(fds, fd) })
}

// maxTimeout is the longest time in a timespec whose seconds have 32 bits: 68 years.
const maxTimeout = math.MaxInt32 * time.Second

// WakeAt makes Next return, as for a wake-up, at a time of CLOCK_BOOTTIME in nanoseconds. With 0 it
// cancels that. Go's timers and the timeouts of system calls would not do: they do not count the time
// during which the machine is suspended.
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
		r.wakeAt = -1 // so that the next call, with the same time, tries again
	}
}

// Wake makes Next return.
func (r *Relay) Wake() { r.put(0) }

// put writes the number of a signal into the pipe, or 0 for a wake-up.
func (r *Relay) put(number byte) {
	_, _ = eintr.Get(func() (int, error) { return unix.Write(r.write, []byte{number}) })
}
