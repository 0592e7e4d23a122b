// Package held is the protocol by which golocks of the same user ask a holder about its slot. They
// ask whether it is still held, or tell the holder to renew or to release it.
//
// The holder listens on a socket named after the slot's ID, in a directory that only its user may
// enter. If it can make no socket there (no directory, a full disk), it listens on an abstract
// socket (unix(7)), whose name other users can learn. So each side also asks the kernel for the
// user of the other. A question is one packet, and so is its answer.
package held

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/userns"
	"golock/locks"
)

// Question is what a client asks.
type Question string

const (
	Confirm Question = "held"    // asks whether the slot is still held; a lease is renewed before the answer
	Release Question = "release" // tells the holder to release the slot, if no command runs in it
)

// ErrNobody is what Ask returns if no holder has answered.
var ErrNobody = errors.New("no golock of this user answers for it")

// ErrRefused is a holder's answer to Release. The other answers are nil (the slot is still held, or was
// released on request), locks.ErrLost, and an error that says why the store cannot tell now.
var ErrRefused = errors.New("only the golock that runs the command may release the slot")

// answers are the words for what a holder knows. Any other answer is the text of its error.
func answers() map[string]error {
	return map[string]error{"yes": nil, "no": locks.ErrLost, "refused": ErrRefused}
}

const (
	suffix  = ".sock"
	backlog = 128 // the number of clients that are connected and not yet accepted
	maxText = 1024
)

// socketPath returns the path on which the holder of an ID listens.
func socketPath(dir, id string) string { return dir + "/" + id + suffix }

// abstractName returns the name on which the holder of an ID listens if it cannot make a file. The
// first byte stands for the zero of an abstract name.
func abstractName(id string) string { return "@golock-" + id }

// errStandsForOthers says why an abstract socket is not used: the kernel could not tell this user from
// others.
var errStandsForOthers = errors.New("this user namespace shows other users under the number of this one")

// newSocket makes a socket for packets, bound or connected to a path. It does not use package net,
// which would make the lean program, and its memory, a twentieth larger.
func newSocket(path string, attach func(fd int, at unix.Sockaddr) error) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, &os.PathError{Op: "socket", Path: path, Err: err}
	}
	err = attach(fd, &unix.SockaddrUnix{Name: path})
	if err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "socket", Path: path, Err: err}
	}
	return fd, nil
}

// Listener answers for one ID.
type Listener struct {
	socket    *os.File
	path      string // the path of the socket; "" if the socket is abstract
	answer    func(context.Context, Question) error
	onPanic   func(error)
	ctx       context.Context
	cancel    context.CancelFunc
	answering sync.RWMutex // read-locked during each answer; Close locks it for ever, so no answer begins later
}

// Listen begins to answer for id, on a socket in dir. It uses an abstract socket if dir is "" or
// the socket cannot be made there. It calls answer in goroutines of its own, several at a time,
// with a context that ends with the listener. onPanic gets a panic of such a goroutine
// (locks.PanicError), which ends only that answer. The caller closes the listener.
func Listen(dir, id string, answer func(context.Context, Question) error, onPanic func(error)) (*Listener, error) {
	l := &Listener{answer: answer, onPanic: onPanic}
	fd := -1
	var noFile error
	if dir != "" {
		l.path = socketPath(dir, id)
		fd, noFile = newSocket(l.path, bindAndListen)
	}
	if fd < 0 {
		l.path = ""
		abstract, err := newAbstract(id, bindAndListen)
		if err != nil && noFile != nil {
			err = fmt.Errorf("%w; %w", noFile, err)
		}
		if err != nil {
			return nil, err
		}
		fd = abstract
	}
	l.socket = os.NewFile(uintptr(fd), id)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.guarded(l.serve)
	return l, nil
}

// guarded does the work of a goroutine, and reports a panic in it.
func (l *Listener) guarded(do func()) {
	var fault error
	defer func() {
		if fault != nil {
			l.onPanic(fault)
		}
	}()
	defer locks.Recover(&fault)
	do()
}

func bindAndListen(fd int, at unix.Sockaddr) error {
	if err := unix.Bind(fd, at); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

// newAbstract makes a socket with the abstract name of an ID.
func newAbstract(id string, attach func(fd int, at unix.Sockaddr) error) (fd int, err error) {
	if userns.StandsForOthers(os.Geteuid()) {
		return -1, errStandsForOthers
	}
	return newSocket(abstractName(id), attach)
}

// Close removes the socket. It waits for the answers under way.
func (l *Listener) Close() {
	l.cancel()
	if l.path != "" {
		_ = os.Remove(l.path)
	}
	l.socket.Close()
	l.answering.Lock()
}

// ioLimit limits a single read or write. A client asks as soon as it has connected.
const ioLimit = time.Second

// serve accepts clients until the listener is closed.
func (l *Listener) serve() {
	socket, err := l.socket.SyscallConn()
	for err == nil { // an error says that the listener was closed
		var client int
		var acceptErr error
		err = socket.Read(func(socket uintptr) bool {
			client, _, acceptErr = unix.Accept4(int(socket), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return acceptErr != unix.EAGAIN
		})
		switch {
		case err != nil:
		case acceptErr != nil: // perhaps no descriptors are left
			time.Sleep(10 * time.Millisecond)
		default:
			go l.guarded(func() { l.handle(client) })
		}
	}
}

// handle answers one client.
func (l *Listener) handle(client int) {
	c := os.NewFile(uintptr(client), "client")
	defer c.Close()
	if !sameUser(client) {
		return
	}
	_ = c.SetDeadline(time.Now().Add(ioLimit))
	var question [maxText]byte
	n, err := c.Read(question[:])
	if err != nil || n == 0 {
		return
	}
	isClosed := !l.answering.TryRLock()
	if isClosed {
		return
	}
	defer l.answering.RUnlock()
	err = l.answer(l.ctx, Question(question[:n]))
	if err == ErrNobody {
		return
	}
	if fault, ok := errors.AsType[*locks.PanicError](err); ok { // a goroutine of the store panicked
		panic(fault)
	}
	text := fmt.Sprint(err)
	for word, known := range answers() {
		if errors.Is(err, known) {
			text = word
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(ioLimit))
	_, _ = c.Write([]byte(text[:min(len(text), maxText)]))
}

// Ask asks the holder of an ID and returns its answer (see ErrRefused), or ErrNobody. If dir is "", it
// asks only on the abstract socket.
func Ask(ctx context.Context, dir, id string, q Question) error {
	fd, err := connect(dir, id)
	if err != nil {
		return err
	}
	c := os.NewFile(uintptr(fd), id)
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	var text [maxText]byte
	n, err := c.Write([]byte(q))
	if err == nil {
		n, err = c.Read(text[:])
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the golock that holds it does not answer")
	case err != nil || n == 0: // the holder ended before it answered
		return ErrNobody
	}
	answer := string(text[:n])
	if err, known := answers()[answer]; known {
		return err
	}
	return errors.New(answer)
}

// Process returns the process that answers for an ID, by its PID in this pid namespace. It returns
// 0 if no process answers, or if the process has no PID here.
func Process(dir, id string) (pid int) {
	fd, err := connect(dir, id)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}

// connect connects to the holder of an ID. ErrNobody says that this user has none.
func connect(dir, id string) (fd int, err error) {
	fd, err = -1, ErrNobody
	if dir != "" {
		fd, err = newSocket(socketPath(dir, id), unix.Connect)
	}
	if err != nil {
		abstract, noAbstract := newAbstract(id, unix.Connect)
		if noAbstract == nil {
			fd, err = abstract, nil
		}
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOTDIR):
		return -1, ErrNobody
	case err != nil:
		return -1, err
	case !sameUser(fd):
		unix.Close(fd)
		return -1, ErrNobody
	}
	return fd, nil
}

// sameUser reports whether the peer has the same effective user (SO_PEERCRED, unix(7)).
func sameUser(socket int) bool {
	cred, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && int(cred.Uid) == os.Geteuid()
}
