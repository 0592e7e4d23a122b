package sqltest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"golock/locks/locktest/server"
)

// Proxy stands between clients and a server and makes faults.
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

// URL is that of a store behind the proxy, with the password.
func (p *Proxy) URL(database string, options ...string) string {
	return tcpURL(p.scheme, "golock", p.Addr(), database, options)
}

// Judge sets what decides about every query from now on. It is called by several
// goroutines with the text, which may be several statements. Other messages pass.
func (p *Proxy) Judge(f func(statement string) server.Verdict) {
	p.Proxy.Judge(func(m server.Message) server.Verdict { return f(m.Request) })
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

func (w *postgresWire) Begin() {}

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

// mariaWire: https://mariadb.com/kb/en/clientserver-protocol/ ; the results of
// a query are one after another, each an OK, an error or columns and rows. No packet stands
// between columns and rows: client and server have agreed on that (CLIENT_DEPRECATE_EOF).
type mariaWire struct {
	mu      sync.Mutex
	state   int
	columns int // still to come
}

// The states of a reply.
const (
	idle      = iota // none is expected, or one that is not looked at
	result           // a result begins
	inColumns        // the definitions of the columns
	inRows
)

const (
	packetHead  = 4 // bytes: a length of 3, a number
	comQuery    = 3
	moreResults = 8 // of the server's state
	okMark      = 0x00
	endMark     = 0xfe
	errMark     = 0xff
)

func (w *mariaWire) Request(r *bufio.Reader) (m server.Message, err error) {
	m.Raw, err = mariaPacket(r)
	if err == nil && len(m.Raw) > packetHead && m.Raw[3] == 0 && m.Raw[packetHead] == comQuery { // a command is packet 0
		m.IsRequest, m.Request = true, string(m.Raw[packetHead+1:])
	}
	return m, err
}

func (w *mariaWire) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = result
}

func (w *mariaWire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	if raw, err = mariaPacket(r); err != nil {
		return nil, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	body := raw[packetHead:]
	if len(body) == 0 || w.state == idle {
		return raw, false, nil
	}
	switch mark := body[0]; {
	case mark == errMark && w.state != inColumns:
		w.state = idle
	case w.state == result && mark == okMark, w.state == inRows && mark == endMark:
		w.state = idle
		if okFlags(body)&moreResults != 0 {
			w.state = result
		}
	case w.state == result:
		n, _ := lengthEncoded(body)
		w.columns, w.state = int(n), inColumns
	case w.state == inColumns:
		if w.columns--; w.columns == 0 {
			w.state = inRows
		}
	}
	return raw, w.state == idle, nil
}

// okFlags are those of an OK packet: after two numbers.
func okFlags(body []byte) uint16 {
	_, first := lengthEncoded(body[1:])
	_, second := lengthEncoded(body[1+first:])
	return binary.LittleEndian.Uint16(body[1+first+second:])
}

// lengthEncoded reads a number of 1, 3, 4 or 9 bytes.
func lengthEncoded(b []byte) (value uint64, size int) {
	size = map[byte]int{0xfc: 3, 0xfd: 4, 0xfe: 9}[b[0]]
	if size == 0 {
		return uint64(b[0]), 1
	}
	var full [8]byte
	copy(full[:], b[1:size])
	return binary.LittleEndian.Uint64(full[:]), size
}

func mariaPacket(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, packetHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	return readRest(r, head, int(head[0])|int(head[1])<<8|int(head[2])<<16)
}
