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

// plan is what a new process does before it is the program: a list of system calls. Go code cannot
// run there. Its first two fields are read by fork, and all of it is reached through it, so that the
// garbage collector keeps it.
type plan struct {
	first *step
	count int

	steps   []step
	names   []string // of the steps' system calls
	ignore  action
	initial action // the default action
	mask    uint64
	limit   unix.Rlimit
	path    *byte
	argv    []*byte
	env     []*byte
}

// step is a system call. The process ends after one that fails, or whose result is another one than
// want.
type step struct {
	number uintptr
	args   [4]uintptr
	want   uintptr // anyResult: what is not an error
	result uintptr // written by the process
}

const anyResult = ^uintptr(0)

const execve = "execve"

// action is the kernel's struct sigaction (rt_sigaction(2)): handler, flags, restorer and mask. All
// zero is the default action.
type action [4]uintptr

const (
	sigIgn   = 1
	setSize  = 8 // bytes of a signal set
	lastSig  = 64
	allBlock = ^uint64(0)
)

// fork starts a process that goes through the plan. The result is a process or a negative errno.
func fork(p *plan) (pid uintptr)

// forkExec is Fork for a process that began in package entry.
func forkExec(path string, argv, env []string, attr *syscall.SysProcAttr) (pid int, err error) {
	p, err := newPlan(path, argv, env, attr)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A signal to the new process must not run a handler of this one, which shares its memory.
	all, before := allBlock, uint64(0)
	sigprocmask(&all, &before)
	result := fork(p)
	sigprocmask(&before, nil)
	if errno := asErrno(result); errno != 0 {
		return 0, setupError("clone", errno)
	}
	pid = int(result)
	for i, s := range p.steps {
		if errno := asErrno(s.result); errno != 0 {
			_, _ = eintr.Get(func() (int, error) { return syscall.Wait4(pid, nil, 0, nil) })
			return 0, setupError(p.names[i], errno)
		}
	}
	runtime.KeepAlive(p)
	return pid, nil
}

// setupError is the error of a system call of a new process: that of execve concerns the program, and
// a lack of processes or memory concerns the whole machine. All others are refusals of a call.
func setupError(call string, errno syscall.Errno) error {
	if call == execve || errno == syscall.EAGAIN || errno == syscall.ENOMEM {
		return errno
	}
	return os.NewSyscallError(call, errno)
}

func newPlan(path string, argv, env []string, attr *syscall.SysProcAttr) (*plan, error) {
	p := &plan{ignore: action{sigIgn}}
	var err error
	if p.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if p.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	if p.env, err = syscall.SlicePtrFromStrings(env); err != nil {
		return nil, err
	}
	if attr.Setpgid {
		p.add("setpgid", unix.SYS_SETPGID, 0, uintptr(attr.Pgid))
	}
	if attr.Pdeathsig != 0 {
		p.add("prctl", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(attr.Pdeathsig))
		p.add("getppid", unix.SYS_GETPPID)
		p.steps[len(p.steps)-1].want = uintptr(unix.Getpid()) // another one: it is dead already
	}
	p.addSignals()
	if limit, raised := raisedLimit(); raised {
		p.limit = limit
		p.add("prlimit64", unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&p.limit)), 0)
	}
	p.add("rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&p.mask)), 0, setSize)
	p.add(execve, unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)), uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.env[0])))
	p.first, p.count = &p.steps[0], len(p.steps)
	return p, nil
}

func (p *plan) add(name string, number uintptr, args ...uintptr) {
	s := step{number: number, want: anyResult}
	copy(s.args[:], args)
	p.steps = append(p.steps, s)
	p.names = append(p.names, name)
}

// addSignals restores what the caller of this process ignored. What this process catches has its
// default action before signals are unblocked.
func (p *plan) addSignals() {
	p.mask, _ = entry.Mask()
	ignored, _ := entry.Ignored()
	for sig := uintptr(1); sig <= lastSig; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		act := &p.initial
		if ignored&(1<<(sig-1)) != 0 {
			act = &p.ignore
		}
		p.add("rt_sigaction", unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(act)), 0, setSize)
	}
}

// raisedLimit is the caller's limit of open files, if it is the Go runtime that has raised it
// (syscall/rlimit.go): another process may have set it meanwhile.
func raisedLimit() (before unix.Rlimit, raised bool) {
	before, _ = entry.OpenFiles()
	var now unix.Rlimit
	err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now)
	return before, err == nil && now.Max == before.Max && now.Cur == now.Max-1 && before.Cur < now.Cur
}

// replace is Exec for a process that began in package entry.
func replace(path string, argv, env []string) error {
	ignored, _ := entry.Ignored()
	var before [lastSig + 1]action
	for sig := uintptr(1); sig <= lastSig; sig++ {
		sigaction(sig, nil, &before[sig])
		switch {
		case ignored&(1<<(sig-1)) != 0:
			sigaction(sig, &action{sigIgn}, nil)
		case before[sig][0] == sigIgn, sig == uintptr(unix.SIGURG): // which drops one of the Go runtime that is pending
			sigaction(sig, &action{}, nil)
		}
	}
	err := syscall.Exec(path, argv, env)
	for sig := uintptr(1); sig <= lastSig; sig++ {
		sigaction(sig, &before[sig], nil)
	}
	return err
}

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
