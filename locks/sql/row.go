package sql

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// format is the version of the table's contents. The table's own row has it.
const format = 4

// The states of rows that are no entries. Rows of entries have the states of package queue.
const (
	tableRow queue.State = 'T' // the table's own; lock_key and entry_id are empty
	nameRow  queue.State = 'N' // the row of the name itself, whose entry_id is empty
)

// columns are the columns of an entry, without the key of the name. Other rows have columns of their own: see
// nameState and makeTable.
//
//	ord       of waiters: the order of the queue, priority and ticket (see order)
//	ends      when the lease, or the place in the queue, ends; of a tombstone,
//	          when the entry left
//	due       a waiter that has not asked again by then is passed over; an offer that
//	          is not accepted by then is void
//	since     when it began to hold, or to wait
//	max_units 0 if the entry has no limit
//	hold      until when the slot stays taken in any case; of a waiter, how long
//	          that will be
//	conn      the waiter's connection, if it can be woken; else 0
//	replaces  the value of its --replace
//	evicted   who has evicted it
//	info      who owns it (see infoOf)
//	login     the login with which its owner asked last (see facts.login)
//
// All times are us, on the server's clock.
const columns = "state,entry_id,ord,ends,due,ttl,weight,max_units,fence,since,hold,conn," +
	"replaces,slots,evicted,info,login"

// selected are the columns as they are read. Of a text one letter more than golock writes is read: that shows
// whether somebody has made it longer.
const selected = selectedBefore + "LEFT(info,4001)" + selectedAfter

const (
	selectedBefore = "state,entry_id,ord,ends,due,ttl,weight,max_units,fence,since,hold,conn," +
		"LEFT(replaces,17),LEFT(slots,8001),LEFT(evicted,1001),"
	selectedAfter = ",LEFT(login,301)"
)

// selectedMany are the columns where there may be many rows: 10,000 must fit in network.AnswerSize. A name of a
// host with 255 bytes has up to 765 in info.
const selectedMany = selectedBefore + "LEFT(info,1000)" + selectedAfter

// selectedOf returns the columns for a listing, which has the names of the locks too. rows is FROM ... WHERE ...
// of the listing. If it gives more than a thousand rows, less of info is read.
func selectedOf(rows string) string {
	return selectedBefore + "CASE WHEN (SELECT COUNT(*)" + rows + ")>1000 THEN LEFT(info,400) ELSE LEFT(info,4001) END" +
		selectedAfter
}

// selectedBrief are the columns where the rows together are too long for one answer, because somebody has filled
// the texts of many. A list of slots that is longer than golock writes for thousands of entries is not read, so
// its row has a flaw that can be removed.
const selectedBrief = "state,entry_id,ord,ends,due,ttl,weight,max_units,fence,since,hold,conn,LEFT(replaces,17)," +
	"CASE WHEN CHAR_LENGTH(slots)>100 OR CHAR_LENGTH(evicted)>100 THEN '" + omitted + "' ELSE slots END," +
	"LEFT(evicted,100),LEFT(info,100),LEFT(login,100)"

// omitted stands for a list of slots in selectedBrief.
const omitted = "omitted"

const (
	maxSlots   = 8000 // bytes of a list of slots
	maxInfo    = 4000
	maxName    = 3 * 255 // escaped
	maxEvicted = 1000
	maxServer  = 200
	maxLogin   = 300

	manyServers = 8 // the number of servers that a name remembers
)

// row is an entry as the table has it, or a name's own row. Its fields are described at columns; wakeConn is the
// column conn.
type row struct {
	queue.Entry
	ends, due int64
	ttl       time.Duration
	since     int64
	hold      int64
	wakeConn  int64
	info      string
	login     string
	flaw      error // why golock cannot have written the row; nil if it can
}

// until returns when an entry ends, unless it is prolonged.
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

// left returns the time until a waiter is overdue, or until the time of any other entry is over.
func (r *row) left(now int64) time.Duration {
	end := r.until()
	if r.State == queue.Waiting {
		end = r.due
	}
	return max(span(end-now), 0)
}

// isName reports whether a row is a name's own.
func (r *row) isName() bool { return r.State == nameRow && r.ID == "" }

// orderSize is the length of what order gives.
const orderSize = 32

// order returns a text that sorts like the places in the queue: higher priorities first, then lower tickets.
func order(c locks.Claim) string {
	return fmt.Sprintf("%016x%016x", ^(uint64(c.Priority) ^ 1<<63), uint64(c.Ticket))
}

// parseOrder reads the text of order, and sets priority and ticket of a claim.
func parseOrder(text string, c *locks.Claim) error {
	if text == "" {
		return nil
	}
	var priority, ticket uint64
	_, _ = fmt.Sscanf(text, "%16x%16x", &priority, &ticket)
	c.Priority, c.Ticket = int(int64(^priority^1<<63)), int64(ticket)
	if order(*c) != text { // this also refuses a priority that does not fit into the int of this machine
		return fmt.Errorf("ord %q", locks.Printable(text, 40))
	}
	return nil
}

// scan reads the first fields of a line.
func scan(line []string, into ...any) (err error) {
	for i, to := range into {
		switch to := to.(type) {
		case *string:
			*to = line[i]
		case *int:
			*to, err = strconv.Atoi(line[i])
		case *int64:
			*to, err = strconv.ParseInt(line[i], 10, 64)
		}
		if err != nil {
			return &lease.Refusal{Err: err, Kind: lease.ForNewcomers}
		}
	}
	return nil
}

// parseRow reads the columns that selected, or another list like it, gives. A row with a flaw has all fields that
// could be read.
func parseRow(line []string) (r row) {
	state, ord, slots := line[0], line[2], line[13]
	r.ID, r.Replace, r.Evicted, r.login = line[1], locks.Replacement(line[12]), unescape(line[14]), line[16]
	r.info = wholeLetters(line[15])
	var ttl int64
	r.flaw = scan(line[3:], &r.ends, &r.due, &ttl, &r.Claim.Weight, &r.Claim.Max, &r.Fence, &r.since, &r.hold, &r.wakeConn)
	r.ttl = span(ttl)
	if len(state) == 1 {
		r.State = queue.State(state[0])
	}
	isLong := len(slots) > maxSlots || len(line[14]) > maxEvicted || len(line[15]) > maxInfo || len(r.login) > maxLogin
	switch {
	case r.flaw != nil:
	case isLong:
		r.flaw = errors.New("a longer text than there can be")
	case slots == omitted:
		r.flaw = errors.New("a longer text than there is room for among so many entries")
	}
	if r.flaw == nil {
		r.flaw = r.check(ord, slots)
	}
	return r
}

// check parses the texts ord and slots. It returns why golock cannot have written the row, or nil if it can.
func (r *row) check(ord, slots string) error {
	if !isPlain(string(r.Replace), r.info, r.login) {
		return errors.New("letters that need quoting")
	}
	switch r.State {
	case queue.Tombstone:
		return nil
	case queue.Waiting, queue.Offered, queue.Holding, queue.Ended:
	default:
		return fmt.Errorf("state %q", r.State)
	}
	if !isID(r.ID) {
		return errors.New("an ID is 32 hexadecimal digits")
	}
	if err := parseOrder(ord, &r.Claim); err != nil {
		return err
	}
	var err error
	if r.Slots, err = locks.ParseSlots(slots, max(r.Claim.Weight, 0)); err != nil {
		return err
	}
	stored := r.Stored(r.ttl, 0)
	stored.Moments = []int64{r.ends, r.due, r.since, r.hold} // a waiter's hold has the same bound
	return stored.Check()
}

// isID reports whether a text is an entry's ID, or a name's key.
func isID(text string) bool { return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == "" }

// invalid describes a row with a flaw.
func (r *row) invalid(name, key string) locks.InvalidEntry {
	i := locks.InvalidEntry{Name: name, ID: r.ID, TTL: r.leaseTTL(), Err: r.flaw}
	i.Ref, _ = locks.ParseRef(key + "-" + r.ID)
	return i
}

// leaseTTL returns an entry's TTL, or the default if golock cannot have written it.
func (r *row) leaseTTL() time.Duration {
	if r.ttl <= 0 || r.ttl > locks.MaxTTL {
		return lease.DefaultTTL
	}
	return r.ttl
}

// repair makes the columns of an evicted row with a flaw valid. The row ends after a TTL: its owner cannot have
// renewed it while it had a flaw, and has stopped by then.
func (r *row) repair(now int64) {
	r.ttl = r.leaseTTL()
	r.ends = min(max(r.ends, now), now+micros(r.ttl))
	r.due, r.since, r.hold, r.wakeConn, r.info, r.login = 0, now, 0, 0, "", ""
}

// fields returns the row's values as SQL writes them, in the order of columns.
func (r *row) fields() []string {
	ord := ""
	if r.State != queue.Tombstone {
		ord = order(r.Claim)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	text := func(s string) string { return "'" + s + "'" }
	return []string{
		text(string(r.State)), text(r.ID), text(ord), number(r.ends), number(r.due), number(micros(r.ttl)),
		number(int64(r.Claim.Weight)), number(int64(r.Claim.Max)), number(r.Fence), number(r.since), number(r.hold),
		number(r.wakeConn), text(string(r.Replace)), text(locks.FormatSlots(r.Slots)), text(escape(r.Evicted, maxEvicted)),
		text(r.info), text(r.login),
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

// span converts a number of us. It returns the longest duration if the number is too large.
func span(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// escape writes any text in letters that need no quoting in SQL, in at most limit bytes.
func escape(text string, limit int) string {
	return cut(strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), limit)
}

func cut(escaped string, limit int) string {
	if len(escaped) <= limit {
		return escaped
	}
	return wholeLetters(escaped[:limit])
}

// wholeLetters returns an escaped text without a letter (%XX) at its end of which a part was cut off.
func wholeLetters(escaped string) string {
	if i := strings.LastIndexByte(escaped, '%'); i >= 0 && i > len(escaped)-3 {
		return escaped[:i]
	}
	return escaped
}

func unescape(text string) string {
	plain, _ := url.QueryUnescape(text)
	return strings.ToValidUTF8(plain, "�")
}
