package network

import (
	"fmt"
	"net"
	"sync"
)

// AnswerSize is the size of the largest answer that is read: a list of 10,000 entries with what a store
// tells of each.
const AnswerSize = 16 << 20

// Protocol follows the plain text of a connection. It refuses what the client library cannot
// read safely: libraries make room for as much as an answer announces, before it is there.
type Protocol interface {
	// Sent is told what the client is about to send.
	Sent(b []byte) error

	// Received is told what has come, before the client gets it.
	Received(b []byte) error
}

// Conn is a connection that ends when its Protocol refuses something.
type Conn struct {
	net.Conn

	mu       sync.Mutex // guards what follows
	protocol Protocol
	fault    error
}

// Watch makes a Conn of a connection.
func Watch(c net.Conn, p Protocol) *Conn { return &Conn{Conn: c, protocol: p} }

// Fault is what the Protocol has refused, or nil. Some libraries hide the error of a read.
func (c *Conn) Fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if fault := c.ask(func() error { return c.protocol.Received(b[:n]) }); fault != nil {
		return 0, fault
	}
	return n, err
}

func (c *Conn) Write(b []byte) (int, error) {
	if fault := c.ask(func() error { return c.protocol.Sent(b) }); fault != nil {
		return 0, fault
	}
	return c.Conn.Write(b)
}

// ask asks the Protocol. After a refusal the connection is of no use.
func (c *Conn) ask(question func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	c.fault = question()
	if c.fault != nil {
		_ = c.Close()
	}
	return c.fault
}

// Budget is a Protocol that limits only the size of an answer: what comes before the client
// sends again.
type Budget struct{ size int }

// Sent implements Protocol.
func (b *Budget) Sent([]byte) error {
	b.Reset()
	return nil
}

// Reset begins another answer.
func (b *Budget) Reset() { b.size = 0 }

// Received implements Protocol.
func (b *Budget) Received(p []byte) error {
	if b.size += len(p); b.size > AnswerSize {
		return TooLong("more than %d MiB", AnswerSize>>20)
	}
	return nil
}

// Damaged is the error of an answer that no sound server gives. As for a connection that
// breaks, another attempt may succeed.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("a damaged answer: "+format, args...)
}

// TooLong is the error of an answer that no sound server gives, or of a part of it, because of its
// size.
func TooLong(format string, args ...any) error {
	return fmt.Errorf("an answer longer than golock accepts: "+format, args...)
}

// Recover makes an error of a panic of a client library, which could not read what the server
// sent. It is deferred by what calls the library and does little else: a panic of golock's own is
// a fault (see locks.Recover).
func Recover(err *error) {
	if v := recover(); v != nil {
		*err = Damaged("the client library failed on it: %v", v)
	}
}
