//go:build linux && (amd64 || arm64) && !portable

package spawn

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/entry"
)

// plan is the list of system calls that a new process makes before it executes the program. Go code
// cannot run in that process. The system calls get addresses of the other fields, so plan keeps them
// from the garbage collector.
type plan struct {
	// The assembly of fork reads these two fields at these offsets.
	first *call
	count int

	calls         []call
	names         []string // the names of the calls, for errors
	ignoreAction  action
	defaultAction action
	mask          uint64
	limit         unix.Rlimit
	path          *byte
	argv          []*byte
	env           []*byte
}

// call is a system call of the new process. The process ends after a call that fails or that has
// another result than want.
type call struct {
	number uintptr
	args   [4]uintptr
	want   uintptr // the result of a successful call, or anyResult
	result uintptr // the result of the call, written by the new process
}

// anyResult accepts every result that is not an error.
const anyResult = ^uintptr(0)

const execve = "execve"

// action is the kernel's struct sigaction (rt_sigaction(2)): handler, flags, restorer and mask. All
// zero is the default action.
type action [4]uintptr

const (
	sigIgn     = 1
	setSize    = 8 // bytes of a signal set
	lastSig    = 64
	allSignals = ^uint64(0)
)

// fork starts a process that makes the calls of the plan. It returns the PID or a negative errno.
func fork(p *plan) (pid uintptr)

// forkExec does what Fork does, in a process that began in package entry.
func forkExec(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	p, err := newPlan(path, argv, env, attr)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The new process shares the memory of this one, so a signal to it must not run a handler.
	mask := allSignals
	var previousMask uint64
	sigprocmask(&mask, &previousMask)
	result := fork(p)
	sigprocmask(&previousMask, nil)
	if errno := asErrno(result); errno != 0 {
		return 0, setupError("clone", errno)
	}
	pid = int(result)
	for i, c := range p.calls {
		if errno := asErrno(c.result); errno != 0 {
			_, _ = eintr.Get(func() (int, error) { return syscall.Wait4(pid, nil, 0, nil) })
			return 0, setupError(p.names[i], errno)
		}
	}
	runtime.KeepAlive(p)
	return pid, nil
}

// setupError makes the error of a failed call of the new process. It names the call, unless the cause
// is the program (execve) or a lack of processes or memory.
func setupError(call string, errno syscall.Errno) error {
	if call == execve || errno == syscall.EAGAIN || errno == syscall.ENOMEM {
		return errno
	}
	return os.NewSyscallError(call, errno)
}

func newPlan(path string, argv, env []string, attr *syscall.SysProcAttr) (*plan, error) {
	p := &plan{ignoreAction: action{sigIgn}}
	var err error
	p.path, err = syscall.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	p.argv, err = syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return nil, err
	}
	p.env, err = syscall.SlicePtrFromStrings(env)
	if err != nil {
		return nil, err
	}
	if attr.Setpgid {
		p.add("setpgid", unix.SYS_SETPGID, 0, uintptr(attr.Pgid))
	}
	if attr.Pdeathsig != 0 {
		p.add("prctl", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(attr.Pdeathsig))
		// If the parent died before prctl, the new process would never get the signal.
		p.add("getppid", unix.SYS_GETPPID)
		p.calls[len(p.calls)-1].want = uintptr(unix.Getpid())
	}
	p.addSignals()
	if limit, isRaised := raisedLimit(); isRaised {
		p.limit = limit
		p.add("prlimit64", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&p.limit)), 0)
	}
	p.add("rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.mask)), 0, setSize)
	p.add(execve, unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))
	p.first, p.count = &p.calls[0], len(p.calls)
	return p, nil
}

func (p *plan) add(name string, number uintptr, args ...uintptr) {
	c := call{number: number, want: anyResult}
	copy(c.args[:], args)
	p.calls = append(p.calls, c)
	p.names = append(p.names, name)
}

// addSignals adds the calls that make the new process ignore what the caller of this process ignored.
// All other signals get their default action before they are unblocked, so that none runs a handler
// of this process.
func (p *plan) addSignals() {
	p.mask, _ = entry.Mask()
	ignored, _ := entry.Ignored()
	for sig := uintptr(1); sig <= lastSig; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		act := &p.defaultAction
		if isIn(ignored, sig) {
			act = &p.ignoreAction
		}
		p.add("rt_sigaction", unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(act)), 0, setSize)
	}
}

// raisedLimit returns the caller's limit of open files, and whether the Go runtime has raised it
// (syscall/rlimit.go). If another process has set the limit meanwhile, isRaised is false: that limit
// must stay.
func raisedLimit() (original unix.Rlimit, isRaised bool) {
	original, _ = entry.OpenFiles()
	var current unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &current)
	isByRuntime := current.Max == original.Max && current.Cur == current.Max-1 && original.Cur < current.Cur
	return original, err == nil && isByRuntime
}

// replace executes a program in place of this process. It ignores exactly the signals that the caller
// ignored. If execve(2) fails, it restores the actions of all signals.
func replace(path string, argv, env []string) error {
	ignored, _ := entry.Ignored()
	var previous [lastSig + 1]action
	for sig := uintptr(1); sig <= lastSig; sig++ {
		sigaction(sig, nil, &previous[sig])
		isIgnoredNow := previous[sig][0] == sigIgn
		switch {
		case isIn(ignored, sig):
			sigaction(sig, &action{sigIgn}, nil)
		case isIgnoredNow, sig == uintptr(unix.SIGURG): // the default action drops a pending URG of the Go runtime
			sigaction(sig, &action{}, nil)
		}
	}
	err := syscall.Exec(path, argv, env)
	for sig := uintptr(1); sig <= lastSig; sig++ {
		sigaction(sig, &previous[sig], nil)
	}
	return err
}

// isIn reports whether a set of signals, with signal 1 in bit 0, has a signal.
func isIn(set uint64, sig uintptr) bool { return set&(1<<(sig-1)) != 0 }

// asErrno returns the error in the result of a system call, or 0 if the call succeeded.
func asErrno(result uintptr) syscall.Errno {
	if int(result) >= 0 {
		return 0
	}
	return syscall.Errno(-int(result))
}

func sigaction(sig uintptr, set, old *action) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}

func sigprocmask(set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), setSize, 0, 0)
}
