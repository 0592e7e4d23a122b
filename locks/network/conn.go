package network

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golock/locks"
)

// AnswerSize limits the size of an answer, in bytes. A list of 10,000 entries with all their facts
// fits into it.
const AnswerSize = 16 << 20

// Protocol checks the decrypted bytes of a connection. It refuses what the client library cannot
// read safely: libraries allocate as much memory as an answer announces, before the answer has
// come.
type Protocol interface {
	// Sent gets what the client is about to send.
	Sent(b []byte) error

	// Received gets what has come from the server, before the client gets it.
	Received(b []byte) error
}

// Conn is a connection that closes when its Protocol refuses something.
type Conn struct {
	net.Conn

	mu       sync.Mutex // guards the fields below
	protocol Protocol
	fault    error // what the Protocol has refused; nil if nothing
	trips    *Trips
	sent     locks.Instant // when the last request was sent; 0 if something has come since
}

// Watch wraps a connection, so that a Protocol checks it, and the round trips on it are measured.
func Watch(c net.Conn, p Protocol, trips *Trips) *Conn {
	return &Conn{Conn: c, protocol: p, trips: trips}
}

// Fault returns what the Protocol has refused, or nil. Some libraries hide the error of a read.
func (c *Conn) Fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	fault := c.check(func() error {
		c.measure(n)
		return c.protocol.Received(b[:n])
	})
	if fault != nil {
		return 0, fault
	}
	return n, err
}

func (c *Conn) Write(b []byte) (int, error) {
	fault := c.check(func() error {
		c.sent = locks.BootTime()
		return c.protocol.Sent(b)
	})
	if fault != nil {
		return 0, fault
	}
	return c.Conn.Write(b)
}

// measure notes a round trip when n bytes have come. The caller has locked c.mu.
func (c *Conn) measure(n int) {
	if n > 0 && c.sent > 0 {
		c.trips.Note(locks.BootTime().Sub(c.sent))
		c.sent = 0
	}
}

// check makes a call of the Protocol, unless an earlier one was refused. After a refusal it closes the
// connection.
func (c *Conn) check(call func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	c.fault = call()
	if c.fault != nil {
		_ = c.Close()
	}
	return c.fault
}

// Budget is a Protocol that only limits the size of an answer. An answer is everything that comes
// before the client sends again.
type Budget struct{ size int }

// Sent implements Protocol.
func (b *Budget) Sent([]byte) error {
	b.Reset()
	return nil
}

// Reset starts the count of another answer.
func (b *Budget) Reset() { b.size = 0 }

// Received implements Protocol.
func (b *Budget) Received(p []byte) error {
	b.size += len(p)
	if b.size > AnswerSize {
		return TooLong("more than %d MiB", AnswerSize>>20)
	}
	return nil
}

// Damaged returns the error of an answer that no working server gives. Another attempt may succeed, as
// after a broken connection.
func Damaged(format string, args ...any) error {
	return fmt.Errorf("a damaged answer: "+format, args...)
}

// ErrTooLong is in the error of an answer that is longer than golock accepts.
var ErrTooLong = errors.New("an answer longer than golock accepts")

// TooLong returns the error of an answer, or of a part of an answer, that is longer than any that a
// working server gives. It wraps ErrTooLong.
func TooLong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrTooLong}, args...)...)
}

// Recover turns a panic of a client library, which could not read what the server sent, into an
// error. Only a function that calls the library and does little else may defer it: a panic of
// golock itself is a fault (see locks.Recover).
func Recover(err *error) {
	if v := recover(); v != nil {
		*err = Damaged("the client library failed on it: %v", v)
	}
}
