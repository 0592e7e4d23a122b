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
)

// format is that of what the table holds. It stands in its first row.
const format = 1

// The states of a row.
const (
	tableRow = "T" // the table's own; lock_key and entry_id are empty
	nameRow  = "N" // a name's own; entry_id is empty
	holding  = "H"
	waiting  = "W"
	gone     = "G" // left or released; remembered for a while, place is when
)

// columns are those of the table, but for the two of its key.
//
//	place     waiters: the priority turned round; they stand in the order of
//	          place, ticket, entry_id
//	ends      when the lease, or the place in the queue, ends; a holder with
//	          ttl 0 has gone and keeps its slot until hold
//	max_units 0: none
//	hold      until when the slot stays taken in any case
//	ears      the waiter's connection, if it can be woken; else 0
//	woken     1: it is its turn, or it must look for another reason
//	replaces  what its --replace said
//	evicted   who wants it gone
//	info      who it is; of a name its text
//
// Moments and times are us, of the server's clock. Of a name's own row ticket is
// the counter that every step advances; see nameState for the other columns.
const columns = "state,entry_id,place,ticket,ends,ttl,weight,max_units,fence,since,hold,ears,woken,replaces,slots,evicted,info"

const (
	maxSlots   = 8000 // bytes of a list of slots
	maxInfo    = 4000
	maxEvicted = 1000
	maxServer  = 200

	manyServers = 8 // that a name remembers
)

// columnTypes is what both dialects understand.
func columnTypes(text func(size int) string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "  "+format+",\n", args...) }
	line("lock_key %s", text(32))
	line("entry_id %s", text(32))
	line("state %s", text(1))
	for _, name := range strings.Fields("place ticket ends ttl weight max_units fence since hold ears woken") {
		line("%s BIGINT NOT NULL DEFAULT 0", name)
	}
	line("replaces %s", text(16))
	line("slots %s", text(maxSlots))
	line("evicted %s", text(maxEvicted))
	line("info %s", text(maxInfo))
	line("epoch %s", text(64))
	line("server %s", text(manyServers*(maxServer+1)))
	for _, name := range strings.Fields("quiet pace seen turn granted format") {
		line("%s BIGINT NOT NULL DEFAULT 0", name)
	}
	b.WriteString("  PRIMARY KEY (lock_key, entry_id)")
	return b.String()
}

// row is an entry.
type row struct {
	state    string
	id       string
	claim    locks.Claim
	ends     int64
	ttl      time.Duration
	fence    int64
	since    int64
	hold     int64
	wakeConn int64
	woken    bool
	replaces locks.Replacement
	slots    []int
	evicted  string
	info     string
	goneAt   int64 // of one that has gone
}

// until is when an entry that nobody prolongs is over.
func (r *row) until() int64 {
	if r.state == holding {
		return max(r.ends, r.hold)
	}
	return r.ends
}

// left reports whether a holder has gone, and only its hold keeps the slot.
func (r *row) left(now int64) bool { return r.state == holding && (r.ttl == 0 || r.ends <= now) }

// before is the order of waiters.
func (r *row) before(o *row) bool {
	if r.claim.Priority == o.claim.Priority && r.claim.Ticket == o.claim.Ticket {
		return r.id < o.id
	}
	return r.claim.Before(o.claim)
}

// place is the column of that name.
func (r *row) place() int64 {
	if r.state == gone {
		return r.goneAt
	}
	return place(r.claim.Priority)
}

// place is the priority as a number that sorts upwards.
func place(priority int) int64 { return ^int64(priority) }

// numbers reads fields one by one and remembers the first that is none.
type numbers struct{ err error }

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

func (n *numbers) note(err error) {
	if err != nil && n.err == nil {
		n.err = err
	}
}

// seconds reads a number of them, with a fraction, as us.
func (n *numbers) seconds(field string) int64 {
	whole, fraction, _ := strings.Cut(field, ".")
	return n.read(whole)*1_000_000 + n.read((fraction + "000000")[:6])
}

func parseRow(f []string) (row, error) {
	if len(f) != strings.Count(columns, ",")+1 {
		return row{}, fmt.Errorf("a row with %d columns", len(f))
	}
	var n numbers
	r := row{
		state: f[0], id: f[1],
		claim: locks.Claim{Ticket: n.read(f[3]), Weight: n.count(f[6]), Max: n.count(f[7])},
		ends:  n.read(f[4]), ttl: time.Duration(n.read(f[5])) * time.Microsecond, fence: n.read(f[8]), since: n.read(f[9]), hold: n.read(f[10]),
		wakeConn: n.read(f[11]), woken: n.read(f[12]) != 0, replaces: locks.Replacement(f[13]), evicted: unescape(f[15]), info: f[16],
	}
	if r.state == gone {
		r.goneAt = n.read(f[2])
	} else {
		r.claim.Priority = ^n.count(f[2])
	}
	if !isPlain(r.id, r.state, string(r.replaces), r.info) {
		return r, errNotOurs
	}
	var err error
	if r.slots, err = locks.ParseSlots(f[14], lease.MaxUnits); err != nil {
		return r, err
	}
	return r, n.err
}

// fields are the row's values as SQL writes them, in the order of columns.
func (r *row) fields() ([]string, error) {
	slots := locks.FormatSlots(r.slots)
	if len(slots) > maxSlots {
		return nil, refusal("the free slots are too scattered to be written down (%d bytes)", len(slots))
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	text := func(s string) string { return "'" + s + "'" }
	woken := int64(0)
	if r.woken {
		woken = 1
	}
	return []string{
		text(r.state), text(r.id), number(r.place()), number(r.claim.Ticket), number(r.ends), number(r.ttl.Microseconds()),
		number(int64(r.claim.Weight)), number(int64(r.claim.Max)), number(r.fence), number(r.since), number(r.hold), number(r.wakeConn), number(woken),
		text(string(r.replaces)), text(slots), text(escape(r.evicted, maxEvicted)), text(r.info),
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
