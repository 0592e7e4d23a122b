// Package pidfd names a process by a descriptor, so that nothing reaches a later process of the same
// number.
//
// The descriptor is that of pidfd_open(2). Linux before 5.3 has none, and some seccomp profiles
// refuse it: there it is the process's directory in /proc, which does not show a later process
// either. A signal then goes out by kill(2), right after a look at that directory.
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
	pid         int  // its number
	isDirectory bool // the descriptor is the directory in /proc
}

// Open opens a process. ESRCH says that there is none of that number, EINVAL that the number is that
// of a thread.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		return &Process{fd: fd, pid: pid}, nil
	case err == unix.ENOENT: // of a thread, since Linux 6.15
		return nil, unix.EINVAL
	case err == unix.ESRCH, err == unix.EINVAL, pid <= 0:
		return nil, err
	}
	return openDirectory(pid, err)
}

// openDirectory opens a process where pidfd_open was refused.
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

// Inherited gives the process of a descriptor that another process has opened; pid is its number, 0 if
// it is not known.
func Inherited(fd, pid int) *Process {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return &Process{fd: fd, pid: max(pid, 0), isDirectory: err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR}
}

// PID is the number of the process.
func (p *Process) PID() int { return p.pid }

// FD is the descriptor, for a child to inherit.
func (p *Process) FD() int { return p.fd }

// Close closes the descriptor.
func (p *Process) Close() { unix.Close(p.fd) }

// Ended reports whether the process has ended. It may be a zombie.
func (p *Process) Ended() bool {
	if p.isDirectory {
		s, err := procfs.ReadStatAt(p.fd, "stat")
		switch err {
		case nil:
			return !s.Alive()
		case unix.ESRCH:
			return true
		}
		// /proc hides it (hidepid=: EPERM, ENOENT) since it executes a program of another user, or descriptors
		// lack.
		return p.pid > 0 && unix.Kill(p.pid, 0) == unix.ESRCH
	}
	ready, err := eintr.Get(func() (int, error) {
		return unix.Ppoll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, &unix.Timespec{}, nil)
	})
	if err != nil { // a seccomp profile refuses ppoll(2): this takes a zombie for a live process
		return unix.PidfdSendSignal(p.fd, 0, nil, 0) == unix.ESRCH
	}
	return ready > 0
}

// Wakes reports whether the descriptor becomes readable when the process ends. One that does not
// has to be asked.
func (p *Process) Wakes() bool { return !p.isDirectory }

// lookAgain is how often a process without a pidfd is asked.
const lookAgain = time.Second

// AwaitEnd returns when the process has ended. It is for a descriptor that does not wake.
func (p *Process) AwaitEnd() {
	for !p.Ended() {
		time.Sleep(lookAgain)
	}
}

// Signal sends a signal. ESRCH says that the process has ended.
func (p *Process) Signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0) // Linux 5.1 takes the directory too
	if err == nil || err == unix.ESRCH {
		return err
	}
	if p.Ended() {
		return unix.ESRCH
	}
	if p.pid <= 0 { // to kill(2) these are groups of processes
		return err
	}
	return unix.Kill(p.pid, sig) // the number cannot be reused that soon
}

// Refused names the system call of pidfds that the kernel or a seccomp profile refuses, and its
// error.
func Refused() (call string, err error) {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return "pidfd_open", err
	}
	defer unix.Close(fd)
	return "pidfd_send_signal", unix.PidfdSendSignal(fd, 0, nil, 0)
}
