package redis

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golock/locks/network"
)

// What a reply may consist of. COMMAND, which the client of a Cluster asks, has some ten
// thousand elements in six levels.
const (
	maxElements = 1 << 18
	maxDepth    = 16
	maxLine     = 64 << 10
)

// frames follows the replies of a server in RESP2, and implements network.Protocol:
// https://redis.io/docs/latest/develop/reference/protocol-spec/
//
// The library makes an array as long as the reply announces. It also trusts the replies and
// messages that it reads in goroutines of its own, where a panic cannot be recovered.
type frames struct {
	network.Budget        // of one reply: a subscriber gets many without asking
	open           []int  // how many elements each array that has begun still lacks
	elements       int    // of all arrays of the reply
	line           []byte // as much as has come of the line that is read
	text           int    // how many bytes of a text, with its line end, are still to come
	width          int    // how many elements the array has that is the reply
	parts          []part // the first of them
	findsMaster    bool   // the client has asked a sentinel for the address of a master
	subscribed     bool
}

// part is an element of an array that is not an array itself.
type part struct {
	kind byte
	text []byte // or its beginning
}

const (
	maxParts = 3
	maxPart  = 512
)

// Sent implements network.Protocol. The reply to the last request must be complete. Otherwise
// the rest of it would be taken for the reply to this one.
func (f *frames) Sent(b []byte) error {
	if !f.atEnd() && !f.subscribed {
		return network.Damaged("it ends in the middle")
	}
	begin := b[:min(len(b), 64)]
	f.findsMaster = bytes.Contains(begin, []byte("get-master-addr-by-name"))
	f.subscribed = f.subscribed || bytes.Contains(begin, []byte("\r\nsubscribe\r\n"))
	return nil
}

func (f *frames) atEnd() bool { return len(f.open) == 0 && len(f.line) == 0 && f.text == 0 }

// Received implements network.Protocol.
func (f *frames) Received(b []byte) error {
	for len(b) > 0 {
		n, err := f.next(b)
		if err == nil {
			err = f.Budget.Received(b[:n])
		}
		if err == nil && f.atEnd() {
			err = f.end()
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// next reads a line or a text, or what has come of it, and returns how much that is.
func (f *frames) next(b []byte) (int, error) {
	if f.text > 0 {
		n := min(f.text, len(b))
		f.keep(b[:n])
		f.text -= n
		if f.text == 0 {
			f.complete()
		}
		return n, nil
	}
	n := bytes.IndexByte(b, '\n') + 1
	isWhole := n > 0
	if !isWhole {
		n = len(b)
	}
	if len(f.line)+n > maxLine {
		return n, network.Damaged("a line of more than %d KiB", maxLine>>10)
	}
	f.line = append(f.line, b[:n]...)
	if !isWhole {
		return n, nil
	}
	line, ok := bytes.CutSuffix(f.line, []byte("\r\n"))
	f.line = f.line[:0]
	if !ok || len(line) == 0 {
		return n, network.Damaged("a line that begins with %.20q", line)
	}
	return n, f.element(line[0], line[1:])
}

// element begins an element of a reply.
func (f *frames) element(kind byte, rest []byte) error {
	switch kind {
	case '+', '-', ':':
		f.begin(kind, rest)
		f.complete()
		return nil
	case '$', '*':
	default:
		return network.Damaged("a line that begins with %q", kind)
	}
	n, err := length(rest)
	switch {
	case err != nil:
		return err
	case n < 0:
		f.begin('_', nil)
		f.complete()
	case kind == '$' && n > network.AnswerSize:
		return network.Damaged("a text of %d bytes", n)
	case kind == '$':
		f.begin(kind, nil)
		f.text = n + len("\r\n")
	case f.findsMaster && len(f.open) == 0 && n != 2: // the library looks at two of them
		return network.Damaged("an address of %d parts", n)
	case n == 0:
		f.begin(kind, nil)
		f.complete()
	default:
		return f.array(n)
	}
	return nil
}

// length reads the length of a text or an array. -1 is one that does not exist.
func length(digits []byte) (int, error) {
	if string(digits) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(digits), 10, 31)
	if err != nil {
		return 0, network.Damaged("a length of %.20q", digits)
	}
	return int(n), nil
}

func (f *frames) array(n int) error {
	f.begin('*', nil)
	f.open = append(f.open, n)
	if len(f.open) == 1 {
		f.width = n
	}
	f.elements = min(f.elements+n, maxElements+1)
	if f.elements > maxElements {
		return network.Damaged("an array of %d elements", n)
	}
	if len(f.open) > maxDepth {
		return network.Damaged("arrays in %d levels", len(f.open))
	}
	return nil
}

// begin keeps the first elements of the array that is the reply.
func (f *frames) begin(kind byte, text []byte) {
	if len(f.open) == 1 && len(f.parts) < maxParts {
		f.parts = append(f.parts, part{kind, slices.Clone(text[:min(len(text), maxPart)])})
	}
}

// keep adds what has come of a text.
func (f *frames) keep(text []byte) {
	if len(f.open) == 1 && len(f.parts) > 0 {
		last := &f.parts[len(f.parts)-1]
		last.text = append(last.text, text[:min(len(text), maxPart-len(last.text))]...)
	}
}

// complete counts an element that has ended, and the arrays that end with it.
func (f *frames) complete() {
	for len(f.open) > 0 {
		last := &f.open[len(f.open)-1]
		*last--
		if *last > 0 {
			return
		}
		f.open = f.open[:len(f.open)-1]
	}
}

// end ends a reply.
func (f *frames) end() error {
	bad := f.subscribed && f.width > 0 && (f.width != maxParts || !isMessage(f.parts))
	f.Reset()
	f.elements, f.width, f.parts = 0, 0, nil
	if bad {
		return network.Damaged("a message with wrong parts")
	}
	return nil
}

// isMessage reports whether a subscriber may be told this: "message", a channel, a text, or
// "subscribe", a channel, how many there are now.
func isMessage(parts []part) bool {
	if parts[0].kind != '$' {
		return false
	}
	channel, third := string(bytes.TrimSpace(parts[1].text)), parts[2]
	switch string(bytes.TrimSpace(parts[0].text)) {
	case "subscribe", "unsubscribe":
		return third.kind == ':'
	case "message":
		const switched = 5 // the master's name, its old host and port, the new ones
		fields := strings.Split(string(third.text), " ")
		return parts[1].kind == '$' && third.kind == '$' && (channel != "+switch-master" || len(fields) >= switched)
	}
	return false
}

// watched makes connections whose replies are followed.
func watched(dial dialer) dialer {
	return func(ctx context.Context, transport, address string) (net.Conn, error) {
		conn, err := dial(ctx, transport, address)
		if err != nil {
			return nil, err
		}
		c := network.Watch(conn, &frames{})
		if raw, ok := conn.(syscall.Conn); ok { // the library looks whether it still stands
			return socket{c, raw}, nil
		}
		return c, nil
	}
}

// socket is a watched connection without TLS.
type socket struct {
	*network.Conn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (s socket) SyscallConn() (syscall.RawConn, error) { return s.raw.SyscallConn() }

// dialer connects to an address.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)
