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

// frames follows the replies of a server, and implements network.Protocol:
// https://redis.io/docs/latest/develop/reference/protocol-spec/
// The library speaks RESP3 with sentinels, and RESP2 with all others.
//
// The library makes an array as long as the reply announces. It also trusts the replies and
// messages that it reads in goroutines of its own, where a panic cannot be recovered.
type frames struct {
	requests, replies stream
	pending           int  // how many requests have no reply yet
	findsMaster       bool // the last one asks a sentinel for the address of a master
	subscribed        bool
}

// Sent implements network.Protocol. The reply before must be complete. Otherwise the rest of it
// would be taken for the reply to this request.
func (f *frames) Sent(b []byte) error {
	if !f.replies.atEnd() && !f.subscribed {
		return network.Damaged("it ends in the middle")
	}
	if f.requests.atEnd() {
		begin := b[:min(len(b), 64)]
		f.findsMaster = bytes.Contains(begin, []byte("get-master-addr-by-name"))
		f.subscribed = f.subscribed || bytes.Contains(begin, []byte("\r\nsubscribe\r\n"))
	}
	return f.requests.read(b, func() error {
		f.pending++
		return nil
	})
}

// Received implements network.Protocol.
func (f *frames) Received(b []byte) error { return f.replies.read(b, f.replied) }

// replied judges a reply that is complete.
func (f *frames) replied() error {
	r := &f.replies
	switch {
	case r.kind == '-': // one may come unasked: too many clients
	case f.subscribed:
		isArray := r.kind == '*' || r.kind == '>'
		if isArray && !isMessage(r.width, r.parts) {
			return network.Damaged("a message with wrong parts")
		}
	case f.pending == 0: // it would be taken for the reply to the next request
		return network.Damaged("nothing was asked")
	case f.findsMaster && r.kind == '*' && r.width != 2: // the library looks at two of them
		return network.Damaged("an address of %d parts", r.width)
	}
	f.pending = max(f.pending-1, 0)
	return nil
}

// stream takes requests or replies apart.
type stream struct {
	network.Budget // of one reply: a subscriber gets many without asking
	open           []level
	elements       int32  // of all arrays of the reply; as on 32 bits everywhere, so that tests meet its limit
	line           []byte // as much as has come of the line that is read
	text           int    // how many bytes of a text, with its line end, are still to come
	kind           byte   // of the reply
	width          int    // how many elements it has, if it is an array
	parts          []part // the first of them
}

// level is an array that has begun, or a map.
type level struct {
	left  int // how many elements it still lacks
	isMap bool
}

// wantsKey reports whether the next element is the key of a map.
func (l level) wantsKey() bool { return l.isMap && l.left%2 == 0 }

// part is an element of an array that is not an array itself.
type part struct {
	kind byte
	text []byte // or its beginning
}

const (
	maxParts = 3
	maxPart  = 512
)

func (s *stream) atEnd() bool { return len(s.open) == 0 && len(s.line) == 0 && s.text == 0 }

// read takes apart what has come, and calls ended after each request or reply.
func (s *stream) read(b []byte, ended func() error) error {
	for len(b) > 0 {
		n, err := s.next(b)
		if err == nil {
			err = s.Budget.Received(b[:n])
		}
		if err == nil && s.atEnd() {
			err = ended()
			*s = stream{open: s.open, line: s.line}
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// next reads a line or a text, or what has come of it, and returns how much that is.
func (s *stream) next(b []byte) (int, error) {
	if s.text > 0 {
		n := min(s.text, len(b))
		s.keep(b[:n])
		s.text -= n
		if s.text == 0 {
			s.complete()
		}
		return n, nil
	}
	n := bytes.IndexByte(b, '\n') + 1
	isWhole := n > 0
	if !isWhole {
		n = len(b)
	}
	if len(s.line)+n > maxLine {
		return n, network.TooLong("a line of more than %d KiB", maxLine>>10)
	}
	s.line = append(s.line, b[:n]...)
	if !isWhole {
		return n, nil
	}
	line, ok := bytes.CutSuffix(s.line, []byte("\r\n"))
	s.line = s.line[:0]
	if !ok || len(line) == 0 {
		return n, network.Damaged("a line that begins with %.20q", line)
	}
	return n, s.element(line[0], line[1:])
}

// element begins an element of a reply.
func (s *stream) element(kind byte, rest []byte) error {
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(': // a line is all of it
		s.begin(kind, rest)
		s.complete()
		return nil
	case '$', '=', '*', '~', '>', '%':
	default:
		return network.Damaged("a line that begins with %q", kind)
	}
	n, err := length(rest)
	isText := kind == '$' || kind == '='
	switch {
	case err != nil:
		return err
	case n < 0:
		s.begin('_', nil)
		s.complete()
	case isText && n > network.AnswerSize:
		return network.TooLong("a text of %d bytes", n)
	case isText:
		s.begin(kind, nil)
		s.text = n + len("\r\n")
	case n > maxElements-int(s.elements): // the sum, or twice as many, may be more than an int32
		return network.TooLong("an array of %d elements", n)
	case n == 0:
		s.begin(kind, nil)
		s.complete()
	case kind == '%': // a map: keys and values
		return s.array(kind, 2*n)
	default:
		return s.array(kind, n)
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

func (s *stream) array(kind byte, n int) error {
	if len(s.open) > 0 && s.open[len(s.open)-1].wantsKey() {
		return network.Damaged("a map with an array as key") // which would make the library panic
	}
	s.begin(kind, nil)
	s.open = append(s.open, level{n, kind == '%'})
	if len(s.open) == 1 {
		s.width = n
	}
	s.elements += int32(n)
	if s.elements > maxElements {
		return network.TooLong("an array of %d elements", n)
	}
	if len(s.open) > maxDepth {
		return network.Damaged("arrays in %d levels", len(s.open))
	}
	return nil
}

// begin keeps the kind of the reply and, if it is an array, its first elements.
func (s *stream) begin(kind byte, text []byte) {
	if len(s.open) == 0 {
		s.kind = kind
	}
	if len(s.open) == 1 && len(s.parts) < maxParts {
		s.parts = append(s.parts, part{kind, slices.Clone(text[:min(len(text), maxPart)])})
	}
}

// keep adds what has come of a text.
func (s *stream) keep(text []byte) {
	if len(s.open) == 1 && len(s.parts) > 0 {
		last := &s.parts[len(s.parts)-1]
		last.text = append(last.text, text[:min(len(text), maxPart-len(last.text))]...)
	}
}

// complete counts an element that has ended, and the arrays that end with it.
func (s *stream) complete() {
	for len(s.open) > 0 {
		last := &s.open[len(s.open)-1]
		last.left--
		if last.left > 0 {
			return
		}
		s.open = s.open[:len(s.open)-1]
	}
}

// isMessage reports whether a subscriber may be told this: "message", a channel, a text, or
// "subscribe", a channel, how many there are now. A PING has an answer of two texts.
func isMessage(width int, parts []part) bool {
	const pong = 2
	isTexts := !slices.ContainsFunc(parts, func(p part) bool { return p.kind != '$' })
	if width == pong && len(parts) == pong && isTexts {
		return string(bytes.TrimSpace(parts[0].text)) == "pong"
	}
	if width != maxParts || len(parts) != maxParts || parts[0].kind != '$' {
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
