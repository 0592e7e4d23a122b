package sql

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// format is that of what the table holds. It is in the table's first row.
const format = 3

// The states of a row that is not an entry's. Those of entries are queue's.
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
//	          is not accepted by then is void; of a name see nameState.late
//	since     of a name: see nameState.change
//	max_units 0: none
//	hold      until when the slot stays taken in any case; of a waiter, for how long
//	conn      the waiter's connection, if it can be woken; else 0
//	replaces  what its --replace said
//	evicted   who wants it gone
//	info      whose it is (see infoOf); of a name its text
//	server    where it was last asked for (see facts.login); of a name see nameState
//
// All times are us, on the server's clock.
const columns = "state,entry_id,ord,ends,due,ttl,weight,max_units,fence,since,hold,conn," +
	"replaces,slots,evicted,info,server"

const (
	maxSlots   = 8000 // bytes of a list of slots
	maxInfo    = 4000
	maxEvicted = 1000
	maxServer  = 200
	maxLogin   = 300

	manyServers = 8 // that a name remembers
)

// ColumnTypes are the columns and the primary key of the table, one a line. text is the
// type of a column of letters, with a verb for its size.
func ColumnTypes(text string) string {
	all := fmt.Sprintf("lock_key:32 entry_id:32 state:1 ord:%d ends due ttl weight max_units fence since hold conn"+
		" replaces:16 slots:%d evicted:%d info:%d server:%d", orderSize, maxSlots, maxEvicted, maxInfo, manyServers*(maxServer+1)) +
		fmt.Sprintf(" epoch:64 low:%d quiet counter seen turn format", orderSize) // see nameState
	lines := ""
	for column := range strings.FieldsSeq(all) {
		kind := "BIGINT NOT NULL DEFAULT 0"
		name, size, isText := strings.Cut(column, ":")
		if isText {
			kind = strings.Replace(text, "%d", size, 1)
		}
		lines += "  " + name + " " + kind + ",\n"
	}
	return lines + "  PRIMARY KEY (lock_key, entry_id)"
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
	server    string
}

// until is when an entry ends unless it is prolonged.
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
	var priority, ticket uint64
	_, _ = fmt.Sscanf(text, "%16x%16x", &priority, &ticket)
	c.Priority, c.Ticket = int(int64(^priority^1<<63)), int64(ticket)
	if order(*c) != text { // or it is of a machine whose numbers are larger
		return errNotOurs
	}
	return nil
}

// numbers reads fields one by one and remembers the first that is none.
type numbers struct{ err error }

func (n *numbers) note(err error) {
	if err != nil && n.err == nil {
		n.err = &lease.Refusal{Err: err}
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

func parseRow(f []string) (row, error) {
	if len(f[0]) != 1 || !isPlain(f[0], f[1], f[12], f[15], f[16]) {
		return row{}, errNotOurs
	}
	var n numbers
	r := row{
		Entry: queue.Entry{
			State: queue.State(f[0][0]), ID: f[1], Claim: locks.Claim{Weight: n.count(f[6]), Max: n.count(f[7])},
			Fence: n.read(f[8]), Replace: locks.Replacement(f[12]), Evicted: unescape(f[14]),
		},
		ends: n.read(f[3]), due: n.read(f[4]), ttl: span(n.read(f[5])),
		since: n.read(f[9]), hold: n.read(f[10]), conn: n.read(f[11]), info: f[15], server: f[16],
	}
	n.note(parseOrder(f[2], &r.Claim))
	var err error
	r.Slots, err = locks.ParseSlots(f[13], lease.MaxUnits)
	n.note(err)
	return r, n.err
}

// fields are the row's values as SQL writes them, in the order of columns.
func (r *row) fields() []string {
	ord := ""
	if r.State != queue.Gone {
		ord = order(r.Claim)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	text := func(s string) string { return "'" + s + "'" }
	return []string{
		text(string(r.State)), text(r.ID), text(ord), number(r.ends), number(r.due), number(micros(r.ttl)),
		number(int64(r.Claim.Weight)), number(int64(r.Claim.Max)), number(r.Fence), number(r.since), number(r.hold),
		number(r.conn), text(string(r.Replace)), text(locks.FormatSlots(r.Slots)), text(escape(r.Evicted, maxEvicted)), text(r.info),
		text(r.server),
	}
}

// isPlain reports whether texts can be written back without quoting, as all that golock
// has written can.
func isPlain(texts ...string) bool {
	const plain = "-_.~%&=+ 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, text := range texts {
		if strings.Trim(text, plain) != "" {
			return false
		}
	}
	return true
}

func micros(d time.Duration) int64 { return d.Microseconds() }

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// escape writes any text in letters that need no quoting in SQL, in at most limit bytes.
func escape(text string, limit int) string {
	return cut(strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), limit)
}

func cut(escaped string, limit int) string {
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
