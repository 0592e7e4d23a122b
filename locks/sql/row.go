package sql

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// format is that of what the table holds. It stands in its first row.
const format = 2

// The states of a row that is no entry's. Those of entries are queue's.
const (
	tableRow queue.State = 'T' // the table's own; lock_key and entry_id are empty
	nameRow  queue.State = 'N' // a name's own; entry_id is empty
)

// columns are those of an entry, but for the name's key.
//
//	ord       of waiters: the order of the queue, priority and ticket (see order)
//	ends      when the lease, or the place in the queue, ends; of one that has gone,
//	          when it went
//	due       a waiter that has not asked again by then is passed over; an offer that
//	          is not accepted by then is void
//	max_units 0: none
//	hold      until when the slot stays taken in any case; of a waiter, for how long
//	conn      the waiter's connection, if it can be woken; else 0
//	replaces  what its --replace said
//	evicted   who wants it gone
//	info      who it is; of a name its text
//
// Moments and times are us, of the server's clock.
const columns = "state,entry_id,ord,ends,due,ttl,weight,max_units,fence,since,hold,conn,replaces,slots,evicted,info"

const (
	maxSlots   = 8000 // bytes of a list of slots
	maxInfo    = 4000
	maxEvicted = 1000
	maxServer  = 200

	manyServers = 8 // that a name remembers
)

// columnTypes is what both dialects understand. See nameState for the last columns.
func columnTypes(text func(size int) string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+",\n", args...) }
	numbers := func(names string) {
		for _, name := range strings.Fields(names) {
			line("%s BIGINT NOT NULL DEFAULT 0", name)
		}
	}
	line("lock_key %s", text(32))
	line("entry_id %s", text(32))
	line("state %s", text(1))
	line("ord %s", text(orderSize))
	numbers("ends due ttl weight max_units fence since hold conn")
	line("replaces %s", text(16))
	line("slots %s", text(maxSlots))
	line("evicted %s", text(maxEvicted))
	line("info %s", text(maxInfo))
	line("epoch %s", text(64))
	line("server %s", text(manyServers*(maxServer+1)))
	line("low %s", text(orderSize))
	numbers("quiet counter seen turn format")
	b.WriteString("  PRIMARY KEY (lock_key, entry_id)")
	return b.String()
}

// row is an entry as the table has it.
type row struct {
	queue.Entry
	ends, due int64
	ttl       time.Duration
	since     int64
	hold      int64
	conn      int64
	info      string
}

// until is when an entry that nobody prolongs is over.
func (r *row) until() int64 {
	switch r.State {
	case queue.Holding:
		return max(r.ends, r.hold)
	case queue.Ended:
		return r.hold
	case queue.Offered:
		return r.due
	}
	return r.ends
}

// orderSize is the length of what order gives.
const orderSize = 32

// order is the place in the queue as a text that sorts like it: higher priorities
// first, then lower tickets.
func order(c locks.Claim) string {
	return fmt.Sprintf("%016x%016x", ^(uint64(c.Priority) ^ 1<<63), uint64(c.Ticket))
}

// parseOrder reads what order wrote into a claim.
func parseOrder(text string, c *locks.Claim) error {
	if text == "" {
		return nil
	}
	if len(text) != orderSize {
		return errNotOurs
	}
	priority, err := strconv.ParseUint(text[:16], 16, 64)
	ticket, err2 := strconv.ParseUint(text[16:], 16, 64)
	c.Priority, c.Ticket = int(int64(^priority^1<<63)), int64(ticket)
	if err == nil && err2 == nil && order(*c) != text { // on a machine whose numbers are smaller
		return errNotOurs
	}
	return errors.Join(err, err2)
}

// numbers reads fields one by one and remembers the first that is none.
type numbers struct{ err error }

func (n *numbers) note(err error) {
	if err != nil && n.err == nil {
		n.err = err
	}
}

func (n *numbers) read(field string) int64 {
	v, err := strconv.ParseInt(field, 10, 64)
	n.note(err)
	return v
}

// count reads a number that fits into an int.
func (n *numbers) count(field string) int {
	v, err := strconv.Atoi(field)
	n.note(err)
	return v
}

// seconds reads a number of them, with a fraction, as us.
func (n *numbers) seconds(field string) int64 {
	whole, fraction, _ := strings.Cut(field, ".")
	return n.read(whole)*1_000_000 + n.read((fraction + "000000")[:6])
}

func parseRow(f []string) (row, error) {
	if len(f) != strings.Count(columns, ",")+1 || len(f[0]) != 1 {
		return row{}, fmt.Errorf("a row with %d columns", len(f))
	}
	var n numbers
	r := row{
		Entry: queue.Entry{
			State: queue.State(f[0][0]), ID: f[1], Claim: locks.Claim{Weight: n.count(f[6]), Max: n.count(f[7])},
			Fence: n.read(f[8]), Replace: locks.Replacement(f[12]), Evicted: unescape(f[14]),
		},
		ends: n.read(f[3]), due: n.read(f[4]), ttl: span(n.read(f[5])), since: n.read(f[9]), hold: n.read(f[10]), conn: n.read(f[11]), info: f[15],
	}
	if !isPlain(f[0], r.ID, f[12], r.info) {
		return r, errNotOurs
	}
	n.note(parseOrder(f[2], &r.Claim))
	var err error
	r.Slots, err = locks.ParseSlots(f[13], lease.MaxUnits)
	n.note(err)
	return r, n.err
}

// fields are the row's values as SQL writes them, in the order of columns.
func (r *row) fields() ([]string, error) {
	slots := locks.FormatSlots(r.Slots)
	if len(slots) > maxSlots {
		return nil, refusal("the free slots are too scattered to be written down (%d bytes)", len(slots))
	}
	ord := ""
	if r.State != queue.Gone {
		ord = order(r.Claim)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	text := func(s string) string { return "'" + s + "'" }
	return []string{
		text(string(r.State)), text(r.ID), text(ord), number(r.ends), number(r.due), number(micros(r.ttl)),
		number(int64(r.Claim.Weight)), number(int64(r.Claim.Max)), number(r.Fence), number(r.since), number(r.hold), number(r.conn),
		text(string(r.Replace)), text(slots), text(escape(r.Evicted, maxEvicted)), text(r.info),
	}, nil
}

// errNotOurs is for a table that somebody else writes to.
var errNotOurs = errors.New("the table holds something that golock has not written")

// isPlain reports whether texts are such that they can be written back without
// quoting: what golock has written is.
func isPlain(texts ...string) bool {
	for _, text := range texts {
		for _, c := range []byte(text) {
			if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && strings.IndexByte("-_.~%&=+ ", c) < 0 {
				return false
			}
		}
	}
	return true
}

// escape writes any text in letters that need no quoting in SQL, in at most
// limit bytes.
func escape(text string, limit int) string {
	escaped := strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	if len(escaped) <= limit {
		return escaped
	}
	escaped = escaped[:limit]
	if i := strings.LastIndexByte(escaped, '%'); i > limit-3 {
		escaped = escaped[:i]
	}
	return escaped
}

func unescape(text string) string {
	plain, err := url.QueryUnescape(text)
	if err != nil {
		return text
	}
	return strings.ToValidUTF8(plain, "�")
}
