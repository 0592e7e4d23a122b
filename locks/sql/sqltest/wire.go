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

// Verdict is what becomes of a statement.
type Verdict = server.Verdict

// The verdicts.
const (
	Pass      = server.Pass
	LoseReply = server.LoseReply
	Lose      = server.Lose
	Hang      = server.Hang
)

// Proxy stands between clients and a server and makes faults. It tells PostgreSQL's
// clients that there is no TLS.
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

// Judge sets what decides about every request from now on. It is called by several
// goroutines with the request's text, which may be several statements: of a query or, at
// PostgreSQL, of what is to be prepared. Other requests pass.
func (p *Proxy) Judge(f func(statement string) Verdict) {
	p.Proxy.Judge(func(m server.Message) Verdict { return f(m.Request) })
}

// postgresWire: https://www.postgresql.org/docs/current/protocol-message-formats.html
type postgresWire struct{ started bool }

const (
	sslRequest    = 80877103
	gssRequest    = 80877104
	cancelRequest = 80877102
)

func (w *postgresWire) Request(r *bufio.Reader) (server.Message, error) {
	kind := 0
	if w.started {
		kind = 1
	}
	raw, err := postgresMessage(r, kind)
	if err != nil {
		return server.Message{}, err
	}
	if !w.started {
		switch binary.BigEndian.Uint32(raw[4:]) {
		case sslRequest, gssRequest:
			return server.Message{Answer: []byte("N")}, nil
		case cancelRequest:
		default:
			w.started = true
		}
		return server.Message{Raw: raw}, nil
	}
	m := server.Message{Raw: raw}
	switch raw[0] {
	case 'Q':
		m.IsRequest = true
		m.Request = strings.TrimRight(string(raw[5:]), "\x00")
	case 'P': // a name, then the statement
		_, rest, _ := strings.Cut(string(raw[5:]), "\x00")
		m.IsRequest = true
		m.Request, _, _ = strings.Cut(rest, "\x00")
	}
	return m, nil
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
	if size < 4 || size > 1<<28 || kind == 0 && size < 8 {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	raw := append(head, make([]byte, size-4)...)
	_, err := io.ReadFull(r, raw[len(head):])
	return raw, err
}

// mariaWire: https://mariadb.com/kb/en/clientserver-protocol/ ; the results of
// a query are one after another, each an OK, an error or columns and rows.
type mariaWire struct {
	greeted bool // by the client

	mu      sync.Mutex
	noEOF   bool // the client does not want the packet between columns and rows
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
	noEOFFlag   = 1 << 24 // of the client's abilities
	moreResults = 8       // of the server's state
	okMark      = 0x00
	endMark     = 0xfe
	errMark     = 0xff
	maxEOF      = 9 // bytes; longer is a row that begins with a long value
)

func (w *mariaWire) Request(r *bufio.Reader) (server.Message, error) {
	raw, err := mariaPacket(r)
	if err != nil {
		return server.Message{}, err
	}
	m := server.Message{Raw: raw}
	if !w.greeted {
		w.greeted = true
		if len(raw) >= packetHead+4 {
			w.mu.Lock()
			w.noEOF = binary.LittleEndian.Uint32(raw[packetHead:])&noEOFFlag != 0
			w.mu.Unlock()
		}
		return m, nil
	}
	if len(raw) > packetHead && raw[3] == 0 && raw[packetHead] == comQuery { // a command is packet 0
		m.IsRequest = true
		m.Request = string(raw[packetHead+1:])
	}
	return m, nil
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
	if len(body) == 0 {
		return raw, false, nil
	}
	switch w.state {
	case result:
		switch body[0] {
		case okMark:
			w.next(okFlags(body))
		case errMark:
			w.state = idle
		default:
			n, _ := lengthEncoded(body)
			w.columns, w.state = int(n), inColumns
		}
	case inColumns:
		if w.columns--; w.columns == 0 && w.noEOF || w.columns < 0 { // the EOF comes after the last
			w.state = inRows
		}
	case inRows:
		switch {
		case body[0] == errMark:
			w.state = idle
		case body[0] == endMark && w.noEOF && len(body) < 1<<24-1:
			w.next(okFlags(body))
		case body[0] == endMark && len(body) < maxEOF:
			w.next(binary.LittleEndian.Uint16(body[3:]))
		}
	default:
		return raw, false, nil
	}
	return raw, w.state == idle, nil
}

// next is the state after a result with these flags.
func (w *mariaWire) next(flags uint16) {
	w.state = idle
	if flags&moreResults != 0 {
		w.state = result
	}
}

// okFlags are those of an OK packet: after two numbers.
func okFlags(body []byte) uint16 {
	at := 1
	for range 2 {
		if at >= len(body) {
			return 0
		}
		_, n := lengthEncoded(body[at:])
		at += n
	}
	if at+2 > len(body) {
		return 0
	}
	return binary.LittleEndian.Uint16(body[at:])
}

// lengthEncoded reads a number of 1, 3, 4 or 9 bytes.
func lengthEncoded(b []byte) (value uint64, size int) {
	size = map[byte]int{0xfc: 3, 0xfd: 4, 0xfe: 9}[b[0]]
	if size == 0 {
		return uint64(b[0]), 1
	}
	var full [8]byte
	copy(full[:], b[1:min(size, len(b))])
	return binary.LittleEndian.Uint64(full[:]), size
}

func mariaPacket(r *bufio.Reader) ([]byte, error) {
	head := make([]byte, packetHead)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	raw := append(head, make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)...)
	_, err := io.ReadFull(r, raw[packetHead:])
	return raw, err
}
