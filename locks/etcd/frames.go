package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2/hpack"

	"golock/locks"
	"golock/locks/network"
)

// read reads frames until the connection ends.
func (c *conn) read() {
	var err error
	defer func() { c.fail(err) }()
	defer locks.Recover(&err)
	r := &reader{conn: c, decoder: hpack.NewDecoder(4096, nil)}
	r.decoder.SetMaxStringLength(maxHeaderBlock)
	head := make([]byte, frameHead)
	for err == nil {
		_, err = io.ReadFull(c.raw, head)
		if err != nil {
			if !r.started && errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: %w", errMute, err)
			}
			break
		}
		size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		err = r.check(head, size)
		if err != nil {
			break
		}
		payload := make([]byte, size)
		_, err = io.ReadFull(c.raw, payload)
		if err != nil {
			break
		}
		c.mu.Lock()
		c.heard = locks.BootTime()
		c.mu.Unlock()
		err = r.frame(head[3], head[4], binary.BigEndian.Uint32(head[5:])&(1<<31-1), payload)
	}
}

// reader is the state of the goroutine that reads from the connection.
type reader struct {
	*conn
	decoder  *hpack.Decoder
	block    []byte // the part that has come of headers that are not complete
	blockOf  uint32 // the stream of these headers; 0 if there are none
	blockEnd bool   // the stream ends with these headers
	started  bool   // a frame has come
	credit   uint32 // bytes that were read, and that the server has not been told of
}

// errNoHTTP2 is the error of a server that speaks another protocol.
var errNoHTTP2 = errors.New("the server does not speak etcd's protocol")

// errMute is the error of a server that closes a connection without sending anything.
var errMute = errors.New("the server says nothing")

// check checks the head of a frame. The first frame shows which protocol the server speaks.
func (r *reader) check(head []byte, size int) error {
	isTLSAlert := head[0] == 0x15 && head[1] == 3
	switch {
	case !r.started && isTLSAlert:
		return errWantsTLS
	case !r.started && (head[3] != frameSettings || size > maxFrame):
		return errNoHTTP2
	case size > maxFrame:
		return network.TooLong("a frame of %d bytes", size)
	case r.blockOf != 0 && head[3] != frameContinuation:
		return network.Damaged("frame %d within headers", head[3])
	}
	r.started = true
	return nil
}

// frame handles one frame. It ignores frames of kinds that it does not know.
func (r *reader) frame(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case frameData:
		return r.data(flags, id, p)
	case frameHeaders, frameContinuation:
		return r.headers(kind, flags, id, p)
	case frameSettings:
		return r.settings(flags, p)
	case frameReset:
		if s := r.streamOf(id); s != nil {
			s.end(map[string]string{statusHeader: "14", messageHeader: "the server has ended the request"})
		}
	case framePing:
		if flags&flagAck == 0 && len(p) == 8 {
			return r.send(framePing, flagAck, 0, p)
		}
	case frameGoAway:
		return fmt.Errorf("the server has ended the connection: %w", io.EOF)
	case frameWindow:
		return r.grow(id, p)
	}
	return nil
}

func (r *reader) streamOf(id uint32) *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streams[id]
}

// unpad removes padding.
func unpad(flags byte, p []byte) ([]byte, error) {
	if flags&flagPadded == 0 {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, network.Damaged("a frame of %d bytes with padding", len(p))
	}
	return p[1 : len(p)-int(p[0])], nil
}

func (r *reader) data(flags byte, id uint32, p []byte) error {
	r.credit += uint32(len(p))
	if r.credit > 1<<20 {
		if err := r.send(frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, r.credit)); err != nil {
			return err
		}
		r.credit = 0
	}
	p, err := unpad(flags, p)
	s := r.streamOf(id)
	if err != nil || s == nil {
		return err
	}
	if err := s.take(p); err != nil {
		return err
	}
	if flags&flagEndStream != 0 {
		s.end(map[string]string{statusHeader: "14", messageHeader: "the answer has no end"})
	}
	return nil
}

// take adds bytes from the server to the stream. They may be any part of messages.
func (s *stream) take(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, p...)
	for len(s.part) >= messageHead {
		size := int64(binary.BigEndian.Uint32(s.part[1:]))
		switch {
		case s.part[0] != 0:
			return network.Damaged("a compressed message")
		case size > network.AnswerSize:
			return network.TooLong("a message of %d bytes", size)
		}
		end := messageHead + int(size)
		if len(s.part) < end {
			break
		}
		s.messages = append(s.messages, s.part[messageHead:end:end])
		s.kept += end
		if s.kept > streamWindow {
			return network.TooLong("more than it was let send")
		}
		s.part = s.part[end:]
		s.tell()
	}
	return nil
}

// end ends a stream with the headers that say how the call ended. Only the first end counts.
func (s *stream) end(headers map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.headers = true, headers
		delete(s.streams, s.id)
	}
	s.tell()
}

func (r *reader) headers(kind, flags byte, id uint32, p []byte) (err error) {
	if kind == frameHeaders {
		p, err = unpad(flags, p)
		if err != nil {
			return err
		}
		if flags&flagPriority != 0 {
			p = p[min(5, len(p)):]
		}
		r.block, r.blockOf, r.blockEnd = nil, id, flags&flagEndStream != 0
	}
	if id == 0 || id != r.blockOf || len(r.block)+len(p) > maxHeaderBlock {
		return network.Damaged("headers of %d bytes", len(r.block)+len(p))
	}
	r.block = append(r.block, p...)
	if flags&flagEndHeaders == 0 {
		return nil
	}
	r.blockOf = 0
	fields, err := r.decoder.DecodeFull(r.block)
	if err != nil {
		return network.Damaged("its headers: %v", err)
	}
	headers := map[string]string{}
	for _, f := range fields {
		headers[f.Name] = f.Value
	}
	if s := r.streamOf(id); s != nil && r.blockEnd {
		s.end(headers)
	}
	return nil
}

func (r *reader) settings(flags byte, p []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	r.mu.Lock()
	for ; len(p) >= 6; p = p[6:] {
		if binary.BigEndian.Uint16(p) != settingInitialWindow {
			continue
		}
		window := int64(binary.BigEndian.Uint32(p[2:]) & (1<<31 - 1))
		for _, s := range r.streams {
			s.window += window - r.initialWindow
		}
		r.initialWindow = window
	}
	r.moved.Broadcast()
	r.mu.Unlock()
	return r.send(frameSettings, flagAck, 0, nil)
}

// grow notes that the server lets this process send more bytes.
func (r *reader) grow(id uint32, p []byte) error {
	if len(p) != 4 {
		return network.Damaged("a window of %d bytes", len(p))
	}
	n := int64(binary.BigEndian.Uint32(p) & (1<<31 - 1))
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.streams[id]; s != nil {
		s.window += n
	}
	if id == 0 {
		r.conn.window += n
	}
	r.moved.Broadcast()
	return nil
}
