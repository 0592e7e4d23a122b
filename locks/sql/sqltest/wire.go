package sqltest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
)

// wire cuts the two streams of a connection into messages. One goroutine reads
// requests, one replies.
type wire interface {
	request(r *bufio.Reader) (message, error)
	// begin is told before a statement goes to the server.
	begin()
	// reply reads the next message of the server's. last: the server has done
	// all of the statement that begin announced.
	reply(r *bufio.Reader) (raw []byte, last bool, err error)
}

// message is one of a client's.
type message struct {
	raw         []byte
	answer      []byte // what the proxy itself says to it, instead of passing it on
	isStatement bool
	statement   string
}

func newWire(scheme string) wire {
	if scheme == "postgres" {
		return &postgresWire{}
	}
	return &mariaWire{}
}

// postgresWire: https://www.postgresql.org/docs/current/protocol-message-formats.html
type postgresWire struct{ started bool }

const (
	sslRequest    = 80877103
	gssRequest    = 80877104
	cancelRequest = 80877102
)

func (w *postgresWire) request(r *bufio.Reader) (message, error) {
	kind := 0
	if w.started {
		kind = 1
	}
	raw, err := postgresMessage(r, kind)
	if err != nil {
		return message{}, err
	}
	if !w.started {
		switch binary.BigEndian.Uint32(raw[4:]) {
		case sslRequest, gssRequest:
			return message{answer: []byte("N")}, nil
		case cancelRequest:
		default:
			w.started = true
		}
		return message{raw: raw}, nil
	}
	m := message{raw: raw}
	switch raw[0] {
	case 'Q':
		m.isStatement = true
		m.statement = strings.TrimRight(string(raw[5:]), "\x00")
	case 'P': // a name, then the statement
		_, rest, _ := strings.Cut(string(raw[5:]), "\x00")
		m.isStatement = true
		m.statement, _, _ = strings.Cut(rest, "\x00")
	}
	return m, nil
}

func (w *postgresWire) begin() {}

func (w *postgresWire) reply(r *bufio.Reader) (raw []byte, last bool, err error) {
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

func (w *mariaWire) request(r *bufio.Reader) (message, error) {
	raw, err := mariaPacket(r)
	if err != nil {
		return message{}, err
	}
	m := message{raw: raw}
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
		m.isStatement = true
		m.statement = string(raw[packetHead+1:])
	}
	return m, nil
}

func (w *mariaWire) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = result
}

func (w *mariaWire) reply(r *bufio.Reader) (raw []byte, last bool, err error) {
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
