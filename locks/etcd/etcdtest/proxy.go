package etcdtest

import (
	"bufio"
	"encoding/binary"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2/hpack"

	"golock/locks/locktest/server"
)

// Proxy stands between clients and a server and makes faults. It judges requests by what they are
// about: join (a transaction that writes), renew (a keepalive), release (the end of a lease), watch, or "".
type Proxy struct{ *server.Proxy }

// NewProxy starts one before a server. It passes everything on.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	return &Proxy{server.NewProxy(t, s.Addr(), func() server.Wire {
		return &wire{decoder: hpack.NewDecoder(4096, nil), methods: map[uint32]string{}}
	})}
}

// URL returns the URL of a store behind the proxy.
func (p *Proxy) URL() string { return "etcd://" + p.Addr() }

// wire is a connection of HTTP/2. Each frame is a message; a request is the frame with its data.
type wire struct {
	decoder *hpack.Decoder
	methods map[uint32]string // the method that each stream calls
	begun   bool
	last    atomic.Uint32 // the stream of the last request
}

// The frames that matter here (RFC 9113), and their flags.
const (
	frameData    = 0
	frameHeaders = 1
	endOfStream  = 1
)

func readFrame(r *bufio.Reader) (raw []byte, kind, flags byte, stream uint32, err error) {
	head := make([]byte, 9)
	if _, err = io.ReadFull(r, head); err != nil {
		return nil, 0, 0, 0, err
	}
	raw = make([]byte, 9+int(head[0])<<16+int(head[1])<<8+int(head[2]))
	copy(raw, head)
	_, err = io.ReadFull(r, raw[9:])
	return raw, head[3], head[4], binary.BigEndian.Uint32(head[5:]), err
}

// Request implements server.Wire.
func (w *wire) Request(r *bufio.Reader) (m server.Message, err error) {
	if !w.begun {
		w.begun = true
		m.Raw = make([]byte, 24) // the preface
		_, err = io.ReadFull(r, m.Raw)
		return m, err
	}
	raw, kind, _, stream, err := readFrame(r)
	if err != nil {
		return m, err
	}
	m.Raw = raw
	switch kind {
	case frameHeaders:
		fields, err := w.decoder.DecodeFull(raw[9:])
		if err != nil {
			return m, err
		}
		for _, f := range fields {
			if f.Name == ":path" {
				w.methods[stream] = f.Value
			}
		}
	case frameData:
		m.IsRequest, m.Request = true, about(w.methods[stream], raw[9:])
		w.last.Store(stream)
	}
	return m, nil
}

// about says what a request is about.
func about(method string, data []byte) string {
	switch {
	case strings.HasSuffix(method, "/LeaseKeepAlive"):
		return "renew"
	case strings.HasSuffix(method, "/LeaseRevoke"):
		return "release"
	case strings.HasSuffix(method, "/LeaseTimeToLive"):
		return "remaining"
	case strings.HasSuffix(method, "/Watch"):
		return "watch"
	case strings.HasSuffix(method, "/Txn") && strings.Contains(string(data), `{"name":`): // it has a record
		return "join"
	}
	return ""
}

// Reply implements server.Wire.
func (w *wire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	raw, kind, flags, stream, err := readFrame(r)
	return raw, kind == frameHeaders && flags&endOfStream != 0 && stream == w.last.Load(), err
}
