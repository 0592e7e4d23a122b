package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2/hpack"

	"golock/locks"
	"golock/locks/network"
)

// This file is the part of HTTP/2 (RFC 9113) that a gRPC client needs. Package net/http has all of
// HTTP, and would make the start of every networked run slower (docs/decisions.md).

// These are frames, flags and settings of RFC 9113.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9

	flagAck        = 1 // marks the answer to SETTINGS or PING
	flagEndStream  = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 0x20

	settingEnablePush    = 2
	settingInitialWindow = 4

	resetCancel = 8

	frameHead      = 9       // bytes before a frame
	maxFrame       = 1 << 14 // bytes of a frame: no setting changes that
	defaultWindow  = 1<<16 - 1
	maxHeaderBlock = 1 << 16
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// streamWindow is how many bytes a server may send on a stream before the caller has taken them: one message
// of the largest size.
const streamWindow = network.AnswerSize + defaultWindow

// conn is a connection to one server, with any number of streams.
type conn struct {
	raw     net.Conn
	silence time.Duration // how long the server may be silent that owes an answer

	writing sync.Mutex // guards the next fields
	pending []byte     // frames that are written before the next one
	encoder *hpack.Encoder
	block   bytes.Buffer // gets the headers that encoder writes
	lastID  uint32       // the next stream gets the ID lastID+1

	mu            sync.Mutex // guards the fields below
	moved         *sync.Cond // signals that a window has grown, or that the connection has failed
	streams       map[uint32]*stream
	window        int64         // bytes that may be sent on all streams together
	initialWindow int64         // bytes that may be sent on a new stream
	err           error         // why the connection has ended; nil as long as it has not
	heard         locks.Instant // when the server last sent something
	pinged        locks.Instant // when the last ping was sent; 0 before the first
}

// stream is one call.
type stream struct {
	*conn
	id     uint32
	notify chan struct{} // gets a value when something has come

	// The connection's mutex guards the fields below.
	window   int64             // bytes that may be sent
	part     []byte            // the beginning of a message that has not come whole
	messages [][]byte          // whole messages that the caller has not taken
	kept     int               // bytes of these messages with their heads
	taken    int               // bytes that the caller has taken, and that the server has not been told of
	headers  map[string]string // the headers that have ended the stream
	ended    bool
}

// newConn begins a connection. The frames that begin it are sent together with the first request.
func newConn(raw net.Conn, silence time.Duration) *conn {
	c := &conn{
		raw: raw, silence: silence, streams: map[uint32]*stream{}, window: defaultWindow, initialWindow: defaultWindow,
		heard: locks.BootTime(),
	}
	c.moved = sync.NewCond(&c.mu)
	c.encoder = hpack.NewEncoder(&c.block)
	c.pending = append(c.pending, preface...)
	settings := []byte{0, settingEnablePush, 0, 0, 0, 0, 0, settingInitialWindow}
	settings = binary.BigEndian.AppendUint32(settings, streamWindow)
	c.pending = appendFrame(c.pending, frameSettings, 0, 0, settings)
	c.pending = appendFrame(c.pending, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, 1<<30))
	go c.read()
	return c
}

func appendFrame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// writeLimit limits the time of a write. Requests are short, so a server that takes none of them hangs.
const writeLimit = 2 * time.Second

// write sends frames. The caller has locked c.writing.
func (c *conn) write(frames []byte) error {
	if len(c.pending) > 0 {
		frames = append(c.pending, frames...)
		c.pending = nil
	}
	_ = c.raw.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := c.raw.Write(frames)
	if err != nil {
		c.fail(err)
	}
	return err
}

// send writes one frame.
func (c *conn) send(kind, flags byte, stream uint32, payload []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.write(appendFrame(nil, kind, flags, stream, payload))
}

// fail ends the connection and all its streams. Only the first error counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	for _, s := range c.streams {
		s.tell()
	}
	c.moved.Broadcast()
	c.mu.Unlock()
	_ = c.raw.Close()
}

// failure returns why the connection has ended, or nil if it has not.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// open begins a stream with headers and messages. isLast says that no other message follows.
func (c *conn) open(headers []hpack.HeaderField, messages []byte, isLast bool) (*stream, error) {
	s := &stream{conn: c, notify: make(chan struct{}, 1)}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.lastID > 1<<30 {
		c.fail(errors.New("the connection has had all its streams"))
	}
	c.block.Reset()
	for _, h := range headers {
		if err := c.encoder.WriteField(h); err != nil {
			return nil, err
		}
	}
	if c.block.Len() > maxFrame {
		return nil, errors.New("the headers of the request are too long")
	}
	c.lastID += 2
	s.id = c.lastID - 1
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	s.window = c.initialWindow
	c.streams[s.id] = s
	c.mu.Unlock()
	frames := appendFrame(nil, frameHeaders, flagEndHeaders, s.id, c.block.Bytes())
	return s, s.writeData(frames, messages, isLast)
}

// writeData sends other frames and then a message, in pieces of which each fits into the windows. The caller
// has locked c.writing.
func (s *stream) writeData(frames, message []byte, isLast bool) error {
	for {
		hasNothingElse := len(frames) == 0
		n, err := s.takeRoom(min(len(message), maxFrame), hasNothingElse)
		if err != nil {
			return err
		}
		var flags byte
		if isLast && n == len(message) {
			flags = flagEndStream
		}
		if n > 0 {
			frames = appendFrame(frames, frameData, flags, s.id, message[:n])
			message = message[n:]
		}
		if err := s.write(frames); err != nil || len(message) == 0 {
			return err
		}
		frames = nil
	}
}

// takeRoom takes up to n bytes of the windows. With wait it waits until there are some. The caller has locked
// c.writing. takeRoom unlocks it while it waits, because the goroutine that reads, and so hears of a larger
// window, writes too.
func (s *stream) takeRoom(n int, wait bool) (int, error) {
	if wait {
		s.writing.Unlock()
		defer s.writing.Lock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wait && min(s.conn.window, s.window) <= 0 {
		limit := time.AfterFunc(writeLimit, func() { s.fail(errSilent) })
		defer limit.Stop()
	}
	for s.err == nil && wait && min(s.conn.window, s.window) <= 0 {
		s.moved.Wait()
	}
	n = int(max(min(int64(n), s.conn.window, s.window), 0))
	s.conn.window -= int64(n)
	s.window -= int64(n)
	return n, s.err
}

// close ends a stream, and tells the server if that has not ended it.
func (s *stream) close() {
	s.mu.Lock()
	ended := s.ended || s.err != nil
	delete(s.streams, s.id)
	s.mu.Unlock()
	if !ended {
		_ = s.send(frameReset, 0, s.id, binary.BigEndian.AppendUint32(nil, resetCancel))
	}
}

// tell wakes the goroutine that waits for notify.
func (s *stream) tell() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// next takes a message that has come, or the headers that end the stream. If it returns neither of them and
// no error, the caller waits for notify.
func (s *stream) next() (message []byte, headers map[string]string, err error) {
	s.mu.Lock()
	if len(s.messages) == 0 {
		defer s.mu.Unlock()
		if s.ended {
			return nil, s.headers, nil
		}
		return nil, nil, s.err
	}
	message, s.messages = s.messages[0], s.messages[1:]
	s.taken += len(message) + messageHead
	s.kept -= len(message) + messageHead
	credit := 0
	if s.taken > defaultWindow/2 && !s.ended {
		credit, s.taken = s.taken, 0
	}
	s.mu.Unlock()
	if credit > 0 {
		_ = s.send(frameWindow, 0, s.id, binary.BigEndian.AppendUint32(nil, uint32(credit)))
	}
	return message, nil, nil
}

// ping asks the server for a sign of life, but not so often that the server would close the connection. It
// reports whether it has sent a ping.
func (c *conn) ping() bool {
	const least = 6 * time.Second // etcd's own limit is 5 s (--grpc-keepalive-min-time)
	now := locks.BootTime()
	c.mu.Lock()
	isDue := c.pinged == 0 || now.Sub(c.pinged) > least
	if isDue {
		c.pinged = now
	}
	c.mu.Unlock()
	if !isDue {
		return false
	}
	err := c.send(framePing, 0, 0, make([]byte, 8))
	return err == nil
}

// lastHeard returns when the server last sent something.
func (c *conn) lastHeard() locks.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
