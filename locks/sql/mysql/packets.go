package mysql

import (
	"encoding/binary"
	"errors"
	"net"
	"reflect"
	"unsafe"

	"golock/locks/network"
)

// packets follows the packets of a server, and implements network.Protocol:
// https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
//
// A packet may consist of a number. The first byte of a number tells its length. The library allocates as many
// columns as such a number announces.
type packets struct {
	network.Budget
	head      []byte // the size, the number and the first byte of the packet, as far as they have come
	rest      int    // the number of bytes of the packet that have not come yet
	loggedIn  bool   // the server has accepted the login
	encrypted bool   // TLS has begun, so only the size of answers can be checked; see conn.watchDecrypted
}

const (
	headSize = 4 // the size of a packet, and its number

	// maxPacket is larger than any row of a table.
	maxPacket = 1 << 20
	// maxLoginPacket limits the key with which the client encrypts a password.
	maxLoginPacket = 16 << 10

	tlsRequestSize = 32      // the size of the packet with which a client asks for TLS before the login
	clientSSL      = 1 << 11 // the flag in that packet that asks for TLS
)

// The first bytes of packets.
const (
	firstOK      = 0
	firstNumber3 = 0xfd // a number of three bytes follows
	firstNumber8 = 0xfe // a number of eight bytes follows; or, in a short packet, the rows have ended
)

// Sent implements network.Protocol.
func (p *packets) Sent(b []byte) error {
	mayAskForTLS := !p.loggedIn && len(b) == headSize+tlsRequestSize
	if mayAskForTLS && binary.LittleEndian.Uint32(b[headSize:])&clientSSL != 0 {
		p.encrypted = true
	}
	return p.Budget.Sent(b)
}

// Received implements network.Protocol.
func (p *packets) Received(b []byte) error {
	if err := p.Budget.Received(b); err != nil || p.encrypted {
		return err
	}
	for len(b) > 0 {
		if p.rest > 0 {
			n := min(p.rest, len(b))
			p.rest -= n
			b = b[n:]
			continue
		}
		n := min(headSize+1-len(p.head), len(b))
		p.head = append(p.head, b[:n]...)
		b = b[n:]
		if len(p.head) < headSize {
			return nil
		}
		if err := p.begin(); err != nil {
			return err
		}
	}
	return nil
}

// begin checks the head of a packet. The library allocates memory for the whole packet before it has come.
func (p *packets) begin() error {
	size := int(p.head[0]) | int(p.head[1])<<8 | int(p.head[2])<<16
	limit := maxPacket
	if !p.loggedIn {
		limit = maxLoginPacket
	}
	if size > limit {
		return network.TooLong("a packet of %d bytes", size)
	}
	if size == 0 {
		return network.Damaged("an empty packet")
	}
	if len(p.head) == headSize {
		return nil // its first byte has not come
	}
	first := p.head[headSize]
	p.head = p.head[:0]
	p.rest = size - 1
	switch {
	case p.loggedIn && (first == firstNumber3 || first == firstNumber8 && size > 8):
		return network.Damaged("a packet that begins with %#x", first)
	case first == firstOK:
		p.loggedIn = true
	}
	return nil
}

// watchDecrypted puts packets above the TLS of a connection that has logged in. The library begins
// TLS itself, in the middle of the login, and has no hook above it: its private field is replaced.
// (If another version of it has no such field, reflect panics.) During the login the library makes
// room for no more than one packet, and AnswerSize limits that.
func (c *conn) watchDecrypted() error {
	library := reflect.ValueOf(c.raw).Elem()
	field := library.FieldByName("netConn")
	if field.Type() != reflect.TypeFor[net.Conn]() {
		return errors.New("this version of the client library for MySQL cannot be used with TLS")
	}
	raw := (*net.Conn)(unsafe.Pointer(field.UnsafeAddr()))
	c.socket = network.Watch(*raw, &packets{loggedIn: true}, c.trips)
	*raw = c.socket
	if library.FieldByName("buf").FieldByName("buf").Len() > 0 {
		return network.Damaged("nothing was asked") // it would be taken for the answer to the first statement
	}
	return nil
}
