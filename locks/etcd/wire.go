package etcd

import (
	"encoding/binary"

	"golock/locks/network"
)

// This file encodes the requests of etcd's API. rpc.proto and kv.proto define the fields of messages
// (https://github.com/etcd-io/etcd/tree/main/api).

// message is an encoded message to which methods add fields.
type message []byte

// number adds a field, unless it is 0.
func (m message) number(field fieldNumber, n int64) message {
	if n == 0 {
		return m
	}
	m = binary.AppendUvarint(m, uint64(field)<<kindBits|kindVarint)
	return binary.AppendUvarint(m, uint64(n))
}

// bytes adds a field, even if it is empty.
func (m message) bytes(field fieldNumber, b []byte) message {
	m = binary.AppendUvarint(m, uint64(field)<<kindBits|kindBytes)
	m = binary.AppendUvarint(m, uint64(len(b)))
	return append(m, b...)
}

func (m message) text(field fieldNumber, s string) message { return m.bytes(field, []byte(s)) }

// fieldNumber is the number of a field in its message.
type fieldNumber uint32

// A field begins with its number and its kind (https://protobuf.dev/programming-guides/encoding/). golock does
// not use the library protowire, which opens the executable at each start of the program.
const (
	kindBits = 3

	kindVarint  = 0
	kind8Bytes  = 1
	kindBytes   = 2
	kind4Bytes  = 5
	mostFields  = 1<<29 - 1
	kindsOfBits = 1<<kindBits - 1
)

// read calls set with each field of a message: a number or bytes. It skips fields of other kinds.
func read(b []byte, set func(field fieldNumber, n int64, b []byte) error) error {
	for len(b) > 0 {
		head, size := binary.Uvarint(b)
		if number := head >> kindBits; size <= 0 || number == 0 || number > mostFields {
			return network.Damaged("a field without a number")
		}
		b = b[size:]
		n, part, size := readField(head&kindsOfBits, b)
		if size < 0 {
			return network.Damaged("a field with less than it announces")
		}
		b = b[size:]
		if err := set(fieldNumber(head>>kindBits), int64(n), part); err != nil {
			return err
		}
	}
	return nil
}

// readField reads the value of a field. size is the number of bytes that it takes, or -1 if it is damaged.
func readField(kind uint64, b []byte) (n uint64, part []byte, size int) {
	switch kind {
	case kindVarint:
		n, size = binary.Uvarint(b)
		if size <= 0 {
			return 0, nil, -1
		}
		return n, nil, size
	case kindBytes:
		length, size := binary.Uvarint(b)
		if size <= 0 || length > uint64(len(b)-size) {
			return 0, nil, -1
		}
		end := size + int(length)
		return 0, b[size:end], end
	case kind8Bytes:
		size = 8
	case kind4Bytes:
		size = 4
	default:
		return 0, nil, -1
	}
	if size > len(b) {
		return 0, nil, -1
	}
	return 0, nil, size
}

// span is a range of keys: from a key up to, but without, another one. If to is "", it is the one key from.
type span struct{ from, to string }

// under returns the range of the keys that begin with a prefix. The prefix must not end with the byte 255.
func under(prefix string) span {
	last := len(prefix) - 1
	return span{prefix, prefix[:last] + string([]byte{prefix[last] + 1})}
}

func (s span) message() message {
	m := message(nil).text(1, s.from)
	if s.to != "" {
		m = m.text(2, s.to)
	}
	return m
}

// rangeRequest is a RangeRequest.
type rangeRequest struct {
	span
	keysOnly  bool  // the answer has no values, and on etcd 3.7 no leases
	keyLeases bool  // the answer has no values, but leases; not together with a limit
	limit     int64 // the most keys of the answer; 0 for all
	revision  int64 // the revision to read; 0 for the latest
}

func (q rangeRequest) message() message {
	m := q.span.message().number(3, q.limit).number(4, q.revision)
	if q.keyLeases {
		// etcd 3.7 takes keys from its index, which has no leases, unless it has to sort by values. It does
		// so after it has counted up to the limit.
		const sortTarget, ofValue = 6, 4
		m = m.number(sortTarget, ofValue)
	}
	if q.keysOnly || q.keyLeases {
		m = m.number(8, 1)
	}
	return m
}

// operation is a RequestOp of a transaction.
type operation = message

func get(q rangeRequest) operation { return message(nil).bytes(1, q.message()) }

func put(key, value string, lease int64) operation {
	return message(nil).bytes(2, message(nil).text(1, key).text(2, value).number(3, lease))
}

// replace changes the value of a key and keeps its lease. The key must exist, so the transaction needs a
// condition for that.
func replace(key, value string) operation {
	return message(nil).bytes(2, message(nil).text(1, key).text(2, value).number(6, 1))
}

// nested returns the operation that makes another transaction. golock does not read its answers.
func nested(t transaction) operation { return message(nil).bytes(4, t.message()) }

func remove(s span) operation { return message(nil).bytes(3, s.message()) }

// condition is a Compare of a transaction.
type condition = message

// These are the results and targets of comparisons in a Compare.
const (
	isEqual, isGreater, isLess = 0, 1, 2
	ofCreation, ofChange       = 1, 2
)

// unchanged is true if no key of a range has changed after a revision. It does not notice deleted keys.
func unchanged(s span, revision int64) condition {
	m := message(nil).number(1, isLess).number(2, ofChange).text(3, s.from).number(6, revision+1)
	return m.text(64, s.to)
}

// createdAt is true if a key was created at a revision and has not been deleted since.
func createdAt(key string, revision int64) condition {
	m := message(nil).number(1, isEqual).number(2, ofCreation).text(3, key)
	return m.number(5, revision)
}

// isThere is true if a key exists.
func isThere(key string) condition {
	return message(nil).number(1, isGreater).number(2, ofCreation).text(3, key)
}

// isAbsent is true if a key does not exist.
func isAbsent(key string) condition { return createdAt(key, 0) }

// changedAt is true if a key was last changed at a revision.
func changedAt(key string, revision int64) condition {
	return message(nil).number(1, isEqual).number(2, ofChange).text(3, key).number(6, revision)
}

// transaction is a TxnRequest.
type transaction struct {
	conditions []condition
	then       []operation // made if all conditions are true
	other      []operation // made if a condition is false
}

func (t transaction) message() (m message) {
	for _, c := range t.conditions {
		m = m.bytes(1, c)
	}
	for _, o := range t.then {
		m = m.bytes(2, o)
	}
	for _, o := range t.other {
		m = m.bytes(3, o)
	}
	return m
}

// These are the values of the parameter deletions of watchFrom.
const (
	allEvents     = false
	onlyDeletions = true
)

// watchFrom returns a WatchRequest for the events of a range from a revision on, or only for its deletions.
func watchFrom(s span, revision int64, deletions bool) message {
	m := s.message().number(3, revision)
	if deletions {
		const noPuts = 0
		m = m.bytes(5, []byte{noPuts})
	}
	return message(nil).bytes(1, m)
}
