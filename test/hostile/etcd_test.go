//go:build integration

package hostile_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golock/locks/etcd/etcdtest"
	"golock/test/testkit"
)

// etcdScribe is one on etcd. It writes through etcd's JSON gateway.
type etcdScribe struct {
	server *etcdtest.Server
	prefix string
}

func (s etcdScribe) url() string { return "etcd://" + s.server.Addr() + "/" + s.prefix }

// keyValue is a key as the gateway has it.
type keyValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value,omitempty"`
	Lease       int64  `json:"lease,string,omitempty"`
	IgnoreLease bool   `json:"ignore_lease,omitempty"`
	RangeEnd    []byte `json:"range_end,omitempty"`
}

// call makes a call through the gateway. The answer is put into answer, if that is not nil.
func (s etcdScribe) call(t *testing.T, path string, request, answer any) {
	t.Helper()
	body, err := json.Marshal(request)
	testkit.Must(t, err)
	r, err := http.Post("http://"+s.server.Addr()+"/v3/"+path, "application/json", bytes.NewReader(body))
	testkit.Must(t, err)
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, r.Status)
	}
	if answer != nil {
		testkit.Must(t, json.NewDecoder(r.Body).Decode(answer))
	}
}

// entry gives the key of an ID.
func (s etcdScribe) entry(t *testing.T, id string) keyValue {
	t.Helper()
	lock, entry, _ := strings.Cut(id, "-")
	from := []byte(s.prefix + "/" + lock + "/")
	var found struct {
		KVs []keyValue `json:"kvs"`
	}
	s.call(t, "kv/range", keyValue{Key: from, RangeEnd: append(from[:len(from)-1:len(from)-1], '0')}, &found)
	for _, one := range found.KVs {
		if bytes.Contains(one.Key, []byte("/"+entry)) {
			return one
		}
	}
	t.Fatalf("%s has no key", id)
	return keyValue{}
}

func (s etcdScribe) change(t *testing.T, id, field, value string) {
	t.Helper()
	one := s.entry(t, id)
	if bytes.Contains(one.Key, []byte("/w/")) { // of a waiter it has the weight
		at := bytes.LastIndexByte(one.Key, '/') + 1
		_, rest, _ := strings.Cut(string(one.Key[at:]), ".")
		changed := one
		changed.Key = []byte(string(one.Key[:at]) + value + "." + rest)
		s.call(t, "kv/txn", map[string]any{"success": []any{
			map[string]any{"request_delete_range": keyValue{Key: one.Key}}, map[string]any{"request_put": changed},
		}}, nil)
		return
	}
	if field == "end" { // a key on no lease
		one.Lease = 0
		s.call(t, "kv/put", one, nil)
		return
	}
	var record map[string]any
	decoder := json.NewDecoder(bytes.NewReader(one.Value))
	decoder.UseNumber()
	testkit.Must(t, decoder.Decode(&record))
	switch field {
	case "weight", "max", "ttl":
		record[field] = json.Number(value)
	case "fence": // is a revision; the ticket is one, too, and others can write it
		record["ticket"] = json.Number(value)
	default:
		record[field] = value
	}
	var err error
	one.Value, err = json.Marshal(record)
	testkit.Must(t, err)
	one.Lease, one.IgnoreLease = 0, true
	s.call(t, "kv/put", one, nil)
}

// multiply puts all the copies on one lease: its number is made from the first half of their IDs.
func (s etcdScribe) multiply(t *testing.T, id string) {
	t.Helper()
	lock, _, _ := strings.Cut(id, "-")
	one := s.entry(t, id)
	s.call(t, "lease/grant", map[string]string{"ID": "1", "TTL": "3600"}, nil)
	const most = 100 // in a transaction
	type operation struct {
		Put keyValue `json:"request_put"`
	}
	for i := 0; i < manyEntries; i += most {
		var all struct {
			Success []operation `json:"success"`
		}
		for n := i + 1; n <= i+most; n++ {
			copied := keyValue{Key: fmt.Appendf(nil, "%s/%s/h/%032d", s.prefix, lock, n), Lease: 1}
			copied.Value = bytes.Replace(one.Value, []byte(`"slots":"0"`), fmt.Appendf(nil, `"slots":"%d"`, n), 1)
			all.Success = append(all.Success, operation{copied})
		}
		s.call(t, "kv/txn", all, nil)
	}
}

func etcdScribeOf(t *testing.T) etcdScribe {
	return etcdScribe{etcdtest.Shared(t), fmt.Sprintf("stored%d", time.Now().UnixNano())}
}

// The frames of HTTP/2 with which servers of etcd lie. A connection begins with settings.
const (
	http2Data, http2Headers, http2Settings, http2Ping, http2Continuation = 0, 1, 4, 6, 9

	http2Settings0 = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
)

func http2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// http2Answers answers the first two calls of a connection with a message.
func http2Answers(message []byte) []byte {
	const endOfBoth, room = 5, 16 << 10
	all := []byte(http2Settings0)
	text := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	for _, stream := range []uint32{1, 3} {
		for rest := text; len(rest) > 0; rest = rest[min(room, len(rest)):] {
			all = append(all, http2Frame(http2Data, 0, stream, rest[:min(room, len(rest))])...)
		}
		all = append(all, http2Frame(http2Headers, endOfBoth, stream, []byte("\x00\x0bgrpc-status\x010"))...)
	}
	return all
}

// protoField is a field of bytes in a message of etcd.
func protoField(number byte, b []byte) []byte {
	return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(b))), b...)
}

func etcdLies() liedTo {
	begins := func(frames ...[]byte) []byte { return append([]byte(http2Settings0), bytes.Join(frames, nil)...) }
	data := http2Frame(http2Data, 0, 1, many[:16<<10])
	keys := protoField(3, protoField(1, bytes.Repeat([]byte{2<<3 | 2, 0}, 3<<20))) // with nothing in them
	return liedTo{
		start: func(t *testing.T) (string, func(string) string) {
			s := etcdtest.Shared(t)
			prefix := etcdScribeOf(t).prefix
			return s.Addr(), func(address string) string { return "etcd://" + address + "/" + prefix }
		},
		lies: []lie{
			{name: "a frame of 16 MB", begin: []byte(http2Settings0 + "\xff\xff\xff\x00\x00\x00\x00\x00\x01"), endless: many},
			{name: "a message of 4 GB", begin: begins(http2Frame(http2Data, 0, 1, []byte("\x00\xff\xff\xff\xff"))), endless: data},
			{name: "a message of 16 MB without end", begin: begins(http2Frame(http2Data, 0, 1, []byte("\x00\x00\xff\xff\xff"))), endless: data},
			{name: "messages without end", begin: []byte(http2Settings0),
				endless: http2Frame(http2Data, 0, 1, bytes.Repeat([]byte{0}, 15<<10))},
			{name: "headers without end", begin: begins(http2Frame(http2Headers, 0, 1, nil)),
				endless: http2Frame(http2Continuation, 0, 1, many[:16<<10])},
			{name: "pings without end", begin: []byte(http2Settings0), endless: bytes.Repeat(http2Frame(http2Ping, 0, 0, make([]byte, 8)), 1000)},
			{name: "settings without end", begin: []byte(http2Settings0), endless: bytes.Repeat(http2Frame(http2Settings, 0, 0, make([]byte, 6)), 1000)},
			{name: "three million keys", begin: http2Answers(keys)},
			{name: "three million answers", begin: http2Answers(bytes.Repeat(protoField(3, protoField(1, nil)), 3<<20))},
		},
	}
}
