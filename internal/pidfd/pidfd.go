// Package pidfd names a process by a descriptor, so that a signal cannot reach a later process that
// has the same PID.
//
// The descriptor comes from pidfd_open(2). Linux before 5.3 lacks that call, and some seccomp profiles
// refuse it. There the descriptor is the open directory /proc/PID, which does not show a later process
// either. Where the kernel sends no signal by such a descriptor, Signal uses kill(2), right after a look
// at that directory.
package pidfd

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/internal/procfs"
)

// Process is an open descriptor of a process.
type Process struct {
	fd          int
	pid         int  // 0 if it is not known
	isDirectory bool // the descriptor is the directory in /proc, not a pidfd
}

// Open opens a process. ESRCH says that no process has this PID, EINVAL that the number belongs to a
// thread.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return &Process{fd: fd, pid: pid}, nil
	case err == unix.ENOENT: // the number belongs to a thread; Linux says so since 6.15
		return nil, unix.EINVAL
	case err == unix.ESRCH, err == unix.EINVAL, pid <= 0:
		return nil, err
	}
	return openDirectory(pid, err)
}

// openDirectory opens the directory of a process in /proc, after pidfd_open failed with the error
// refused.
func openDirectory(pid int, refused error) (*Process, error) {
	fd, err := eintr.Get(func() (int, error) {
		return unix.Open(procfs.Dir(pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		if unix.Kill(pid, 0) == unix.ESRCH {
			return nil, unix.ESRCH
		}
		return nil, refused // /proc is missing, or hides the process
	}
	p := &Process{fd: fd, pid: pid, isDirectory: true}
	if group := procfs.Status(pid, "Tgid"); group != "" && group != strconv.Itoa(pid) {
		p.Close()
		return nil, unix.EINVAL
	}
	return p, nil
}

// Inherited returns the process of a descriptor that another process has opened. A pid of 0 or less
// says that its PID is not known.
func Inherited(fd, pid int) *Process {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return &Process{fd: fd, pid: max(pid, 0), isDirectory: err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR}
}

// PID returns the process ID, or 0 if it is not known.
func (p *Process) PID() int { return p.pid }

// FD returns the descriptor, which a child may inherit.
func (p *Process) FD() int { return p.fd }

// Close closes the descriptor.
func (p *Process) Close() { unix.Close(p.fd) }

// Ended reports whether the process has ended. A zombie has ended.
func (p *Process) Ended() bool {
	if p.isDirectory {
		stat, err := procfs.ReadStatAt(p.fd, "stat")
		switch err {
		case nil:
			return !stat.Alive()
		case unix.ESRCH:
			return true
		}
		// No descriptor is free, or /proc hides the process (hidepid=: EPERM, ENOENT) because it now executes
		// a program of another user.
		return p.pid > 0 && unix.Kill(p.pid, 0) == unix.ESRCH
	}
	ready, err := eintr.Get(func() (int, error) {
		return unix.Ppoll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, &unix.Timespec{}, nil)
	})
	if err != nil { // A seccomp profile refuses ppoll(2). A signal cannot tell a zombie from a live process.
		return unix.PidfdSendSignal(p.fd, 0, nil, 0) == unix.ESRCH
	}
	return ready > 0
}

// Wakes reports whether the descriptor becomes readable when the process ends. If it does not, the
// caller has to call Ended now and then.
func (p *Process) Wakes() bool { return !p.isDirectory }

// pollInterval is the time between two looks at a process without a pidfd.
const pollInterval = time.Second

// AwaitEnd returns when the process has ended. It is for a descriptor that does not wake.
func (p *Process) AwaitEnd() {
	for !p.Ended() {
		time.Sleep(pollInterval)
	}
}

// Signal sends a signal. ESRCH says that the process has ended.
func (p *Process) Signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0) // since Linux 5.1 this also takes a directory in /proc
	if err == nil || err == unix.ESRCH {
		return err
	}
	if p.Ended() {
		return unix.ESRCH
	}
	if p.pid <= 0 { // kill(2) takes such a number for a group of processes
		return err
	}
	return unix.Kill(p.pid, sig) // Ended has just seen the process, and the kernel does not reuse its PID so soon
}

// Refused returns the system call of pidfds that the kernel or a seccomp profile refuses, and its
// error. The error is nil if both calls work.
func Refused() (call string, err error) {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return "pidfd_open", err
	}
	defer unix.Close(fd)
	return "pidfd_send_signal", unix.PidfdSendSignal(fd, 0, nil, 0)
}
