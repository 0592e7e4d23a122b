package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"golock/cli/term"
	"golock/internal/eintr"
	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/open"
	"golock/runner"
	"golock/signals"
)

// A holder process keeps the slot of golock acquire: this same program. It takes the slot
// itself, so nothing is handed over, and prints what there is to say until then. When it has
// the slot it leaves the session and has none of the caller's files open. It talks to golock
// acquire over a socket:
//
//	request   what is wanted, in JSON   to the holder
//	ID        it has the slot           from the holder
//	one byte  the ID has been printed   to the holder
//
// If the socket ends before the last, the holder releases whatever it has. If it ends before
// the ID, the holder's exit code is that of golock acquire.

// HolderName is the first argument of a holder process.
const HolderName = "golock-holder"

// The descriptors of a holder, beside the standard ones.
const (
	holderSocket  = 3
	holderProcess = 4 // the pidfd of the process of --for
)

// holderRequest is what a holder is to take.
type holderRequest struct {
	Address      string // the store's URL may have secrets: not for the command line
	Request      locks.Request
	Jitter       time.Duration
	Wait         time.Duration
	ConflictCode int
	Out          *term.Printer
}

// Holder is golock as a holder process.
func Holder() int { return recovered(hold) }

func hold(out *term.Printer) error {
	kind, err := unix.GetsockoptInt(holderSocket, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return usageError{fmt.Errorf("%s is started by golock acquire only", HolderName)}
	}
	unix.CloseOnExec(holderSocket)
	unix.CloseOnExec(holderProcess)
	// The collector closes a file that nobody refers to, and its number becomes
	// another's.
	socket := os.NewFile(holderSocket, "socket")
	defer runtime.KeepAlive(socket)
	request := holderRequest{Out: out}
	if json.NewDecoder(socket).Decode(&request) != nil {
		return exitError{code: exitFault} // the caller is gone
	}
	_ = unix.SetNonblock(holderSocket, true)
	relay, err := signals.NewRelay(false)
	if err != nil {
		return err
	}
	relay.Catch()
	// The terminal's signals are for golock acquire.
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU} {
		signals.Ignore(sig)
	}
	store, err := open.Store(request.Address)
	if err != nil {
		return err
	}
	run := &runner.Run{
		Store: store, Address: request.Address, Request: request.Request, Jitter: request.Jitter, Wait: request.Wait,
		Relay: relay, Sockets: socketDir, Log: out.Log, Say: out.Say, Waits: out.Waits(),
	}
	out.Request = &run.Request
	keep := &runner.Holder{Run: run, Process: holderProcess, Caller: holderSocket, Granted: func(g locks.Grant) error {
		if err := detach(); err != nil {
			return err
		}
		return unix.Sendto(holderSocket, []byte(g.Ref.String()), unix.MSG_NOSIGNAL, nil)
	}}
	o := keep.Do()
	if o.Err == runner.ErrCallerGone {
		return exitError{code: exitFault} // which nobody sees
	}
	return noSlot(out, o, request.ConflictCode)
}

// detach leaves the terminal and the last of the caller's files.
func detach() error {
	if _, err := unix.Setsid(); err != nil {
		return fmt.Errorf("setsid: %w", err)
	}
	return unix.Dup3(unix.Stdin, unix.Stderr, 0) // /dev/null
}

// holderClient is golock acquire's end of the socket.
type holderClient struct {
	pid    int
	socket *os.File
}

// abandonLimit bounds the wait for the end of a holder that nobody needs: its
// place in the queue is gone then, or soon will be.
const abandonLimit = 80 * time.Millisecond

var errHolderGone = errors.New("the process that was to hold the slot has ended")

func startHolder(a *acquisition, out *term.Printer) (*holderClient, error) {
	text, err := json.Marshal(holderRequest{a.run.Address, a.run.Request, a.run.Jitter, a.run.Wait, a.conflictCode, out})
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(pair[1])
	h := &holderClient{socket: os.NewFile(uintptr(pair[0]), "holder")}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	closeFilesOnExec()
	a.run.Relay.AsCaller(func() {
		argv := []string{HolderName, a.run.Request.Name, "for", strconv.Itoa(a.pid)}
		h.pid, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
			Dir: "/", Env: os.Environ(),
			Files: []uintptr{null.Fd(), null.Fd(), uintptr(unix.Stderr), uintptr(pair[1]), uintptr(a.process)},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("starting the process that holds the slot from /proc/self/exe: %w", err)
	}
	if _, err := h.socket.Write(text); err != nil {
		return nil, fmt.Errorf("%w: %w", errHolderGone, err)
	}
	a.run.Relay.Watch(pair[0])
	return h, nil
}

// closeFilesOnExec makes all files but the standard ones close-on-exec: who waits
// for the end of a pipe must not wait for the holder.
func closeFilesOnExec() {
	fds, _ := procfs.FDs(0)
	for _, fd := range fds {
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// answer gives the ID of the slot; "": the holder still waits. It never waits while the
// holder lives. A holder that has ended has said why.
func (h *holderClient) answer() (id string, err error) {
	var text [128]byte
	n, _, err := unix.Recvfrom(int(h.socket.Fd()), text[:], unix.MSG_DONTWAIT)
	switch {
	case n > 0:
		return string(text[:n]), nil
	case err == unix.EAGAIN || err == unix.EINTR:
		return "", nil
	}
	var status syscall.WaitStatus
	_, err = eintr.Get(func() (int, error) { return syscall.Wait4(h.pid, &status, 0, nil) })
	if err != nil || !status.Exited() {
		return "", errHolderGone
	}
	return "", exitError{code: status.ExitStatus()}
}

// printed says that the ID is: the holder keeps the slot.
func (h *holderClient) printed() {
	_ = unix.Sendto(int(h.socket.Fd()), []byte{'\n'}, unix.MSG_NOSIGNAL, nil)
}

// abandon says that nobody needs the slot, and waits a moment for the end of the
// holder.
func (h *holderClient) abandon() {
	_ = unix.Shutdown(int(h.socket.Fd()), unix.SHUT_WR)
	for until := time.Now().Add(abandonLimit); time.Now().Before(until); {
		if pid, err := syscall.Wait4(h.pid, nil, syscall.WNOHANG, nil); pid != 0 && err != syscall.EINTR {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
