package postgres

import (
	"encoding/binary"

	"golock/locks/network"
)

// maxMessage is the size of the largest message that is read, in bytes. A row of golock's table
// is a hundredth of that; the library would make room for 1 GiB.
const maxMessage = 1 << 20

// headSize is the length of what every message begins with: its kind, and its size without the kind.
const headSize = 5

// messages follows the messages of a server, and implements network.Protocol:
// https://www.postgresql.org/docs/current/protocol-message-formats.html
//
// The library could limit messages itself, but hides the reason: it says "conn closed".
type messages struct {
	network.Budget
	head []byte // the kind and the size of the message, as far as they have come
	rest int    // the number of bytes of the message that have not come yet
}

// Received implements network.Protocol.
func (m *messages) Received(b []byte) error {
	if err := m.Budget.Received(b); err != nil {
		return err
	}
	for len(b) > 0 {
		if m.rest > 0 {
			n := min(m.rest, len(b))
			m.rest -= n
			b = b[n:]
			continue
		}
		n := min(headSize-len(m.head), len(b))
		m.head = append(m.head, b[:n]...)
		b = b[n:]
		if len(m.head) < headSize {
			return nil
		}
		size := int64(binary.BigEndian.Uint32(m.head[1:])) - 4 // the size counts itself
		switch {
		case size < 0:
			return network.Damaged("a message that begins with %q", m.head)
		case size > maxMessage:
			return network.TooLong("a message of %d bytes", size)
		}
		m.head, m.rest = m.head[:0], int(size)
	}
	return nil
}
