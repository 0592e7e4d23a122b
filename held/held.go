// Package held is the conversation between a golock that holds a slot and
// other golocks of the same user that name the slot by its ID: is it still
// held, prolong it, give it back.
//
// The holder listens on a socket named after the ID, in a directory that only
// its user may enter. Both sides also ask the kernel who the other one is, so
// nobody can answer for another user or give an order to one. A question is one
// packet and so is its answer.
package held

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Question is what a holder can be asked.
type Question string

// The questions.
const (
	Still   Question = "held"    // is it still held? A lease is renewed first
	Release Question = "release" // give it back, if it was taken for that
)

// Answer is what a holder says.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"     // still held; or, to Release, given back
	No      Answer = "no"      // not held any more
	Unknown Answer = "unknown" // the store does not tell just now
	Refused Answer = "refused" // the slot is a command's and not for others to give back
	Silence Answer = ""        // none: for who asks, nobody is there
)

// ErrNobody says that nobody answers for an ID.
var ErrNobody = errors.New("no golock of this user answers for it")

const (
	network = "unixpacket"
	suffix  = ".sock"
	maxText = 1024
)

// socketPath is where the holder of an ID listens.
func socketPath(dir, id string) string { return dir + "/" + id + suffix }

// Listener answers for one ID.
type Listener struct {
	socket *net.UnixListener
	answer func(Question) (Answer, error)
	quit   chan struct{}
	idle   chan struct{} // closed when nobody is let in any more

	mu      sync.Mutex
	closed  bool
	answers sync.WaitGroup // those that are being found
}

// Listen begins to answer for id, with what answer says; that is called from
// goroutines of the listener's, several at a time. An error of answer's is told
// with the answer, in words. The caller closes the listener.
func Listen(dir, id string, answer func(Question) (Answer, error)) (*Listener, error) {
	socket, err := net.ListenUnix(network, &net.UnixAddr{Name: socketPath(dir, id), Net: network})
	if err != nil {
		return nil, err
	}
	l := &Listener{socket: socket, answer: answer, quit: make(chan struct{}), idle: make(chan struct{})}
	go l.serve()
	return l, nil
}

// Close removes the socket. A question that is being answered is answered
// first.
func (l *Listener) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.quit)
	l.socket.Close()
	<-l.idle
	l.answers.Wait()
}

// begin reports whether a question may still be answered.
func (l *Listener) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.answers.Add(1)
	}
	return !l.closed
}

// talkLimit bounds what one side waits for the other to say at once. Who has
// connected is about to ask.
const talkLimit = time.Second

func (l *Listener) serve() {
	defer close(l.idle)
	for {
		c, err := l.socket.AcceptUnix()
		if err != nil {
			select {
			case <-l.quit:
				return
			case <-time.After(10 * time.Millisecond): // no descriptors left, it may be
				continue
			}
		}
		go l.talk(c)
	}
}

// talk is one question and its answer. Who says nothing is waited for only here.
func (l *Listener) talk(c *net.UnixConn) {
	defer c.Close()
	if !sameUser(c) {
		return
	}
	_ = c.SetDeadline(time.Now().Add(talkLimit))
	var text [maxText]byte
	n, err := c.Read(text[:])
	if err != nil || n == 0 {
		return
	}
	if !l.begin() {
		return
	}
	defer l.answers.Done()
	a, failed := l.answer(Question(text[:n]))
	if a == Silence {
		return
	}
	said := string(a)
	if failed != nil {
		said += " " + failed.Error()
	}
	_ = c.SetWriteDeadline(time.Now().Add(talkLimit))
	_, _ = c.Write([]byte(said[:min(len(said), maxText)]))
}

// Ask asks the holder of an ID. ErrNobody: nobody answers. With Unknown comes
// an error that says what the holder knows.
func Ask(ctx context.Context, dir, id string, q Question) (Answer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, socketPath(dir, id))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTDIR) {
		return "", ErrNobody
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	c := conn.(*net.UnixConn)
	if !sameUser(c) {
		return "", ErrNobody
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if _, err := c.Write([]byte(q)); err != nil {
		return "", gone(err)
	}
	var text [maxText]byte
	n, err := c.Read(text[:])
	if err != nil || n == 0 {
		return "", gone(err)
	}
	word, why, _ := strings.Cut(string(text[:n]), " ")
	switch a := Answer(word); {
	case a != Yes && a != No && a != Unknown && a != Refused:
		return "", fmt.Errorf("an answer that golock does not understand: %q", word)
	case why != "":
		return a, errors.New(why)
	default:
		return a, nil
	}
}

// gone is the error of a holder that has ended in the midst of it.
func gone(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the golock that holds it does not answer")
	}
	return ErrNobody
}

// sameUser asks the kernel who has made the other end (SO_PEERCRED, unix(7)).
func sameUser(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(cred.Uid) == os.Geteuid()
	})
	return same
}
