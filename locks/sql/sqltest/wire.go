package sqltest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"golock/locks/locktest/server"
)

// Proxy stands between clients and a server and makes faults. It judges queries by their text, which
// may be several statements. Other messages pass.
type Proxy struct {
	*server.Proxy
	scheme string
}

// NewProxy starts one. It passes everything on.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	wire := func() server.Wire { return &mariaWire{} }
	if s.Kind == "postgres" {
		wire = func() server.Wire { return &postgresWire{} }
	}
	return &Proxy{server.NewProxy(t, s.Addr(), wire), s.Kind}
}

// URL returns the URL of a store behind the proxy, with the password.
func (p *Proxy) URL(database string, options ...string) string {
	return tcpURL(p.scheme, "golock", p.Addr(), database, options)
}

// postgresWire: https://www.postgresql.org/docs/current/protocol-message-formats.html
type postgresWire struct{ started bool }

func (w *postgresWire) Request(r *bufio.Reader) (m server.Message, err error) {
	kind := 1
	if !w.started { // the first message has no kind
		kind, w.started = 0, true
	}
	if m.Raw, err = postgresMessage(r, kind); err == nil && kind == 1 && m.Raw[0] == 'Q' {
		m.IsRequest, m.Request = true, strings.TrimRight(string(m.Raw[5:]), "\x00")
	}
	return m, err
}

func (w *postgresWire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	raw, err = postgresMessage(r, 1)
	return raw, err == nil && raw[0] == 'Z', err // ready for the next query
}

// postgresMessage reads one: its kind, of that many bytes, its length without
// that, the rest.
func postgresMessage(r *bufio.Reader, kind int) ([]byte, error) {
	head := make([]byte, kind+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[kind:]))
	if size < 4 || size > 1<<28 {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	return readRest(r, head, size-4)
}

func readRest(r *bufio.Reader, head []byte, size int) ([]byte, error) {
	raw := append(head, make([]byte, size)...)
	_, err := io.ReadFull(r, raw[len(head):])
	return raw, err
}

// mariaWire: https://mariadb.com/kb/en/clientserver-protocol/ . A reply begins with packet 1 and has as
// many as its results need. Where that to a query ends, the reply to a ping tells, which is the probe.
type mariaWire struct{ replies atomic.Int32 } // that have begun since the last query

const (
	packetHead = 4 // bytes: a length of 3, a number
	comQuery   = 3
	comPing    = 14
)

func (w *mariaWire) Request(r *bufio.Reader) (m server.Message, err error) {
	m.Raw, err = mariaPacket(r)
	if err == nil && len(m.Raw) > packetHead && m.Raw[3] == 0 && m.Raw[packetHead] == comQuery { // a command is packet 0
		w.replies.Store(0)
		m.IsRequest, m.Request, m.Probe = true, string(m.Raw[packetHead+1:]), []byte{1, 0, 0, 0, comPing}
	}
	return m, err
}

func (w *mariaWire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	raw, err = mariaPacket(r)
	return raw, err == nil && raw[3] == 1 && w.replies.Add(1) == 2, err
}

func mariaPacket(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, packetHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return readRest(r, head, int(head[0])|int(head[1])<<8|int(head[2])<<16)
}
