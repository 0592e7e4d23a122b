//go:build integration

package hostile_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Servers whose answers are damaged, or never end. To a run that is an outage.

// lie is what a connection gets in place of an answer.
type lie struct {
	name    string
	after   string // a word of the request whose answer it is; "": the first answer
	begin   []byte
	endless []byte // what follows, again and again; nil: what the server sends
}

// liar is a proxy that lies on the connections that are made while it has a lie.
type liar struct {
	*server.Proxy
	lie  atomic.Pointer[lie]
	lies atomic.Int32 // told so far
}

func newLiar(t *testing.T, upstream string) *liar {
	l := &liar{}
	l.Proxy = server.NewProxy(t, upstream, func() server.Wire {
		return &lyingWire{liar: l, lie: l.lie.Load()}
	})
	return l
}

// lyingWire knows bytes, not messages.
type lyingWire struct {
	liar *liar
	lie  *lie // nil: it passes all
	due  atomic.Bool
	told bool
}

// available is what has come.
func available(r *bufio.Reader) ([]byte, error) {
	_, err := r.Peek(1)
	raw, _ := r.Peek(r.Buffered())
	raw = bytes.Clone(raw)
	_, _ = r.Discard(len(raw))
	return raw, err
}

func (w *lyingWire) Request(r *bufio.Reader) (server.Message, error) {
	raw, err := available(r)
	if w.lie != nil && bytes.Contains(raw, []byte(w.lie.after)) {
		w.due.Store(true)
	}
	return server.Message{Raw: raw}, err
}

func (w *lyingWire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	if w.told && w.lie.endless != nil {
		return w.lie.endless, false, nil
	}
	raw, err = available(r)
	if err == nil && w.lie != nil && !w.told && (w.lie.after == "" || w.due.Load()) {
		w.liar.lies.Add(1)
		if w.lie.after == "" || w.lie.endless != nil {
			w.told = true
		} else { // the next such request gets the same answer
			w.due.Store(false)
		}
		raw = w.lie.begin
	}
	return raw, false, err
}

// liedTo is a store behind a liar.
type liedTo struct {
	start func(t *testing.T) (address string, url func(address string) string)
	lies  []lie
}

func sqlBehind(start func(testing.TB) *sqltest.Server) func(t *testing.T) (string, func(string) string) {
	return func(t *testing.T) (string, func(string) string) {
		s := start(t)
		database := s.NewDatabase(t)
		return s.Addr(), func(address string) string {
			return strings.Replace(s.TCPURL(database, "quarantine=0s"), s.Addr(), address, 1)
		}
	}
}

var many = bytes.Repeat([]byte{'x'}, 64<<10)

// bulk is a text in Redis' protocol.
func bulk(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }

// mysqlColumn describes a column, as packet 2 of an answer.
var mysqlColumn = mysqlPacket(2, []byte("\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00")...)

func lied() map[string]liedTo {
	const query, script = "SET SESSION", "\r\nevalsha\r\n"
	return map[string]liedTo{
		"etcd": etcdLies(),
		"redis": {
			start: func(t *testing.T) (string, func(string) string) {
				return redistest.Start(t).Addr(), func(address string) string { return "redis://" + address + "?quarantine=0s" }
			},
			lies: []lie{
				{name: "an array of a thousand million", begin: []byte("*1000000000\r\n")},
				{name: "an array of less than none", begin: []byte("*-7\r\n")},
				{name: "a map of a thousand million", begin: []byte("%1000000000\r\n")},
				{name: "a text of a gigabyte", begin: []byte("$1000000000\r\n"), endless: many},
				{name: "a line without end", begin: []byte("+"), endless: many},
				{name: "arrays in arrays", begin: []byte("*1\r\n"), endless: bytes.Repeat([]byte("*1\r\n"), 10000)},
				{name: "replies without end", begin: []byte("+OK\r\n"), endless: bytes.Repeat([]byte("+OK\r\n"), 10000)},
				{name: "a million entries", after: script,
					begin: bulk(`{"Verdict":"busy","Entries":[` + strings.Repeat("{},", 3<<20) + "{}]}")},
				{name: "a million words", after: script,
					begin: bulk(`{"Verdict":"held","Record":{"owner":{"command":[` + strings.Repeat(`"",`, 3<<20) + `""]}}}`)},
				{name: "an empty message", after: "subscribe", begin: []byte("*0\r\n")},
				{name: "a message of numbers", after: "subscribe", begin: []byte("*3\r\n:1\r\n:2\r\n:3\r\n")},
				{name: "a subscription of texts", after: "subscribe",
					begin: []byte("*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\ny\r\n")},
			},
		},
		"mariadb": {
			start: sqlBehind(sqltest.Maria),
			lies: []lie{
				{name: "a short greeting", begin: mysqlPacket(0, 0x0a, 0x38)},
				{name: "a greeting of 16 MB", begin: []byte{0xff, 0xff, 0xff, 0, 0x0a}, endless: many},
				{name: "a count of 2^64-1", after: query, begin: mysqlPacket(1, []byte("\xfe\xff\xff\xff\xff\xff\xff\xff\xff")...)},
				{name: "a count of 10^9", after: query, begin: mysqlPacket(1, []byte("\xfe\x00\xca\x9a\x3b\x00\x00\x00\x00")...)},
				{name: "a count of 2^24-1", after: query, begin: mysqlPacket(1, []byte("\xfd\xff\xff\xff")...)},
				{name: "a count and more", after: query, begin: mysqlPacket(1, []byte("\xfd\xff\xff\xff\x00\x00")...)},
				{name: "half a count", after: query, begin: mysqlPacket(1, 0xfe, 1)},
				{name: "an empty packet", after: query, begin: mysqlPacket(1)},
				{name: "rows without end", after: query, begin: append(mysqlPacket(1, 1), mysqlColumn...), endless: mysqlRows(1)},
				{name: "wide rows without end", after: query, begin: mysqlColumns(60_000), endless: mysqlRows(60_000)},
			},
		},
		"postgres": {
			start: sqlBehind(sqltest.Postgres),
			lies: []lie{
				{name: "a login of 4 GB", begin: []byte("R\xff\xff\xff\xff\x00\x00\x00\x00"), endless: many},
				{name: "notices without end", begin: nil, endless: message('N', many[:1000]...)},
				{name: "settings without end", endless: message('S', []byte("name\x00value\x00")...)},
				{name: "a row of 1 GB", after: "BEGIN", begin: []byte("D\x3f\xff\xff\xff\x00\x01"), endless: many},
				{name: "a short row", after: "BEGIN", begin: message('D', 0xff, 0xff)},
				{name: "an odd row", after: "BEGIN", begin: message('T', 0xff, 0xff)},
				{name: "rows without end", after: "BEGIN", begin: postgresColumns(1), endless: postgresRow(1)},
				{name: "wide rows without end", after: "BEGIN", begin: postgresColumns(20_000), endless: postgresRow(20_000)},
			},
		},
	}
}

// mysqlColumns begins an answer of so many columns, and mysqlRows is rows of NULL.
func mysqlColumns(n int) []byte {
	all := mysqlPacket(1, append([]byte{0xfc, byte(n), byte(n >> 8)}, make([]byte, n)...)...)
	for i := range n {
		column := bytes.Clone(mysqlColumn)
		column[3] = byte(2 + i)
		all = append(all, column...)
	}
	return all
}

func mysqlRows(n int) (all []byte) {
	for number := range 256 { // they are not in order, but the first
		all = append(all, mysqlPacket(byte(number), bytes.Repeat([]byte{0xfb}, n)...)...)
	}
	return all
}

func postgresColumns(n int) []byte {
	body := []byte{byte(n >> 8), byte(n)}
	for range n {
		body = append(append(body, "a\x00"...), make([]byte, 18)...)
	}
	return message('T', body...)
}

func postgresRow(n int) []byte {
	return message('D', append([]byte{byte(n >> 8), byte(n)}, bytes.Repeat([]byte{0xff}, 4*n)...)...)
}

// lieTime is how long a lie lasts that golock believes, or that it has not asked for again.
const lieTime = 2 * time.Second

// most is how much memory a golock may use in which such an answer has come: 64 MiB more than
// one in which none has.
const most = 100 << 10 // KiB

func TestDamagedAnswers(t *testing.T) {
	testkit.Each(t, lied(), func(t *testing.T, _ string, store liedTo) {
		for i := range store.lies {
			l := &store.lies[i]
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				upstream, url := store.start(t)
				proxy := newLiar(t, upstream)
				s := testkit.New(t, url(proxy.Addr()))
				job := s.Job("--", "sh", "-c", "echo begun; read end; exit 7").Start()
				job.Expect("begun")
				proxy.lie.Store(l)
				proxy.Cut()
				end := time.Now().Add(lieTime)
				s.Eventually("a lie is told", func() bool { // told twice: golock is done with the first one
					lies := proxy.lies.Load()
					return lies > 1 || lies > 0 && time.Now().After(end) || !job.Running()
				})
				used := peakMemory(job.PID)
				proxy.lie.Store(nil)
				proxy.Cut()
				job.Tell("")
				job.Expects(7)
				if used > most {
					t.Errorf("golock used %d KiB", used)
				}
				if i%2 == 0 || testkit.Deep() {
					proxy.lie.Store(l)
					testDamagedStart(t, i/2, s, l)
				}
			})
		}
	})
}

// testDamagedStart runs commands that meet only such a server.
func testDamagedStart(t *testing.T, i int, s *testkit.Sandbox, l *lie) {
	if l.after == "subscribe" { // which comes later
		return
	}
	commands := [][]string{
		{"run", "-w", "1", "--name", "job", "--", "echo", "started"},
		{"ls", "job"}, {"acquire", "--for", "none", "-w", "1", "--name", "job"}, {"break", "job"}, {"doctor"}, {"clean", "job"},
	}
	for _, which := range []int{0, 1 + i%(len(commands)-1)} {
		args := slices.Insert(commands[which], 1, "--store", s.Store)
		r := s.Golock(args...).By("/usr/bin/time", "-f", "peak %M", "-o", s.Path("peak")).Run()
		var used int
		_, _ = fmt.Sscanf(s.Read("peak")[strings.LastIndex(s.Read("peak"), "peak"):], "peak %d", &used)
		judge(t, args[0], r)
		if which == 0 {
			r.Complaint(t, 69)
		} else if l.after == "" && r.Code != 69 { // others may not ask what is lied about
			t.Errorf("%s: %v", args[0], r)
		}
		if used > most {
			t.Errorf("%s used %d KiB", args[0], used)
		}
	}
}

// peakMemory is the most that a process has used, in KiB.
func peakMemory(pid int) (kib int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	_, _ = fmt.Sscan(line, &kib)
	return kib
}
