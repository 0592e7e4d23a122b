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

// These constants limit a reply. The reply to COMMAND, which the client of a Cluster sends, has
// some ten thousand elements in six levels.
const (
	maxElements = 1 << 18
	maxDepth    = 16
	maxLine     = 64 << 10
)

// frames checks the replies of a server. It implements network.Protocol:
// https://redis.io/docs/latest/develop/reference/protocol-spec/
//
// The library speaks RESP3 with sentinels, and RESP2 with all other servers. It makes an array as
// long as the reply announces. It also trusts the replies and messages that it reads in goroutines
// of its own, where golock cannot recover from a panic.
type frames struct {
	requests, replies stream
	pending           int  // the number of requests that have no reply yet
	findsMaster       bool // the last request asks a sentinel for the address of a master
	subscribed        bool
}

// Sent implements network.Protocol. The previous reply must be complete. Otherwise the library
// would take the rest of it for the reply to this request.
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

// replied checks a reply that is complete.
func (f *frames) replied() error {
	r := &f.replies
	switch {
	case r.kind == '-': // an error may come without a request: too many clients
	case f.subscribed:
		isArray := r.kind == '*' || r.kind == '>'
		if isArray && !isMessage(r.width, r.parts) {
			return network.Damaged("a message with wrong parts")
		}
	case f.pending == 0: // the library would take it for the reply to the next request
		return network.Damaged("nothing was asked")
	case f.findsMaster && r.kind == '*' && r.width != 2: // the library reads two elements without a look at the width
		return network.Damaged("an address of %d parts", r.width)
	}
	f.pending = max(f.pending-1, 0)
	return nil
}

// stream parses requests or replies.
type stream struct {
	network.Budget // limits a single reply, because a subscriber gets many without a request
	open           []level
	elements       int32  // the number of elements of all arrays of the reply; an int32, as on the smallest machines
	line           []byte // the part of a line that has come
	text           int    // the number of bytes of a text, with its line end, that have not come yet
	kind           byte   // the type of the reply
	width          int    // the number of elements, if the reply is an array
	parts          []part // the first elements
}

// level is an array or map that has begun.
type level struct {
	left  int // the number of elements that have not come yet
	isMap bool
}

// wantsKey reports whether the next element is the key of a map.
func (l level) wantsKey() bool { return l.isMap && l.left%2 == 0 }

// part is an element of an array that is not itself an array.
type part struct {
	kind byte
	text []byte // the text, or the beginning of it
}

const (
	maxParts = 3
	maxPart  = 512
)

func (s *stream) atEnd() bool { return len(s.open) == 0 && len(s.line) == 0 && s.text == 0 }

// read parses bytes, and calls ended after each request or reply.
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

// next reads a line, a text, or the part of it that has come. It returns the number of bytes.
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

// element begins an element of a reply. kind is the first byte of the element's line, rest the rest of the line.
func (s *stream) element(kind byte, rest []byte) error {
	switch kind {
	case '+', '-', ':', ',', '#', '_', '(': // such an element is a single line
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
	case n > maxElements-int(s.elements): // checked here, because the sum of array could exceed an int32
		return network.TooLong("an array of %d elements", n)
	case n == 0:
		s.begin(kind, nil)
		s.complete()
	case kind == '%': // a map has keys and values
		return s.array(kind, 2*n)
	default:
		return s.array(kind, n)
	}
	return nil
}

// length reads the length of a text or an array. -1 stands for a null value.
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

// array begins an array, or a map, of n elements.
func (s *stream) array(kind byte, n int) error {
	if len(s.open) > 0 && s.open[len(s.open)-1].wantsKey() {
		return network.Damaged("a map with an array as key") // the library would panic
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

// begin records the type of the reply and, for an array, its first elements.
func (s *stream) begin(kind byte, text []byte) {
	if len(s.open) == 0 {
		s.kind = kind
	}
	if len(s.open) == 1 && len(s.parts) < maxParts {
		s.parts = append(s.parts, part{kind, slices.Clone(text[:min(len(text), maxPart)])})
	}
}

// keep appends bytes of a text to the last part.
func (s *stream) keep(text []byte) {
	if len(s.open) == 1 && len(s.parts) > 0 {
		last := &s.parts[len(s.parts)-1]
		last.text = append(last.text, text[:min(len(text), maxPart-len(last.text))]...)
	}
}

// complete counts an element that has ended, and ends the arrays that are then complete.
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

// isMessage reports whether the library can read a message to a subscriber. Its parts are "message", a channel,
// and a text; or "subscribe", a channel, and the number of channels. The answer to a PING has two texts.
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
		const switched = 5 // elements: the name of the master, its old host and port, its new host and port
		fields := strings.Split(string(third.text), " ")
		return parts[1].kind == '$' && third.kind == '$' && (channel != "+switch-master" || len(fields) >= switched)
	}
	return false
}

// watched makes connections whose replies are checked and whose round trips are measured.
func watched(dial dialer, trips *network.Trips) dialer {
	return func(ctx context.Context, transport, address string) (net.Conn, error) {
		conn, err := dial(ctx, transport, address)
		if err != nil {
			return nil, err
		}
		c := network.Watch(conn, &frames{}, trips)
		if raw, ok := conn.(syscall.Conn); ok { // the library tests whether the connection is still open
			return socket{c, raw}, nil
		}
		return c, nil
	}
}

// socket is a checked connection without TLS.
type socket struct {
	*network.Conn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (s socket) SyscallConn() (syscall.RawConn, error) { return s.raw.SyscallConn() }

// dialer connects to an address.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)
