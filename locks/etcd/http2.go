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

// The frames, flags and settings of RFC 9113.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindow       = 8
	frameContinuation = 9

	flagAck        = 1 // of SETTINGS and PING
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

// streamWindow is how much a server may send on a stream before the receiver has taken it: one
// message of the largest size.
const streamWindow = network.AnswerSize + defaultWindow

// conn is a connection to one server, with any number of streams.
type conn struct {
	raw     net.Conn
	silence time.Duration // how long the server may be silent that owes an answer

	writing sync.Mutex // guards what follows
	pending []byte     // written before the next frame
	encoder *hpack.Encoder
	block   bytes.Buffer
	lastID  uint32

	mu            sync.Mutex // guards what follows
	moved         *sync.Cond // the windows have grown, or the connection has failed
	streams       map[uint32]*stream
	window        int64 // what may be sent on all streams
	initialWindow int64 // what may be sent on a new stream
	err           error
	heard         locks.Instant // when the server last sent something
	pinged        locks.Instant
}

// stream is one call.
type stream struct {
	*conn
	id     uint32
	notify chan struct{} // something has come

	// The connection's mutex guards what follows.
	window   int64
	part     []byte   // of a message
	kept     int      // bytes of whole ones that nobody has taken
	messages [][]byte // whole ones
	taken    int      // bytes that were taken, and that the server has not been told of
	headers  map[string]string
	ended    bool
}

// newConn begins a connection. The first request is sent together with what begins it.
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

// writeLimit bounds a write: what is sent is short, and a server that takes none of it hangs.
const writeLimit = 2 * time.Second

// write sends frames. c.writing is locked.
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

// fail ends the connection and all its streams. The first error counts.
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

// open begins a stream with a request. If it is not the last one of the stream, more may follow.
func (c *conn) open(headers []hpack.HeaderField, message []byte, last bool) (*stream, error) {
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
	return s, s.writeData(frames, message, last)
}

// writeData sends a message behind other frames, in pieces and as far as the server has room for
// it. c.writing is locked.
func (s *stream) writeData(frames, message []byte, last bool) error {
	for {
		n, err := s.room(min(len(message), maxFrame), len(frames) == 0)
		if err != nil {
			return err
		}
		var flags byte
		if last && n == len(message) {
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

// room takes up to n bytes of the windows. With wait it waits until there are some; others may write
// meanwhile, as the goroutine that reads does, which hears of the room. c.writing is locked.
func (s *stream) room(n int, wait bool) (int, error) {
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

// close ends a stream. A server that has not ended it is told.
func (s *stream) close() {
	s.mu.Lock()
	ended := s.ended || s.err != nil
	delete(s.streams, s.id)
	s.mu.Unlock()
	if !ended {
		_ = s.send(frameReset, 0, s.id, binary.BigEndian.AppendUint32(nil, resetCancel))
	}
}

func (s *stream) tell() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// next takes what has come: a message, or the headers that end the stream. Nothing: wait for notify.
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

// ping asks the server for a sign of life, but not so often that it would mind. It reports whether it
// has asked.
func (c *conn) ping() bool {
	const least = 6 * time.Second // etcd's own limit is 5 s (--grpc-keepalive-min-time)
	now := locks.BootTime()
	c.mu.Lock()
	due := c.pinged == 0 || now.Sub(c.pinged) > least
	if due {
		c.pinged = now
	}
	c.mu.Unlock()
	return due && c.send(framePing, 0, 0, make([]byte, 8)) == nil
}

// lastHeard is when the server last sent something.
func (c *conn) lastHeard() locks.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
