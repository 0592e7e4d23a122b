package sql

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golock/locks"
)

// nameState is a name's own row.
type nameState struct {
	name   string
	epoch  string
	server string // those of lately, the latest first
	quiet  int64  // nothing is granted before
	ticket int64  // the last given
	fence  int64  // the last given; also when, if the clock has not gone back
	seen   int64  // when something was last changed
	pace   int64  // about how long one grant follows the other
}

const nameColumns = "state,epoch,server,quiet,ticket,fence,since,pace,info"

// view is what one attempt read, while it held the lock on the name's row:
// nobody else changes anything of the name until it ends.
type view struct {
	now    int64
	server string
	start  int64 // when the server was started
	conn   int64

	tableServer string
	tableQuiet  int64
	name        *nameState // nil: there is none yet

	holders     []row
	front       []row // the first waiters, in their order
	more        bool  // there may be others behind them
	own         *row  // of the caller, in whatever state; nil: there is none
	before      int   // waiters before the caller, if it was asked for
	waiters     int   // all of them, if it was asked for
	replaceable []row
}

// frontSize is how many waiters a view shows. More are not needed to know who
// is next.
const frontSize = 20

// question is what a caller wants to be done with its entry.
type question struct {
	mode     mode
	key      string // hash of the name
	name     string // "" if only the ref is known
	mine     row    // what the caller knows of its entry
	known    bool   // mine is more than an id
	epoch    string // the caller's, of its last answer
	noWait   bool
	within   []string // ids of the enclosing runs
	maxQueue *int
	listens  bool            // it can be woken over this connection
	dead     map[string]bool // waiters whose connections have gone
	near     bool            // it is one of the first
	who      string
}

type mode int

const (
	join mode = iota
	renew
	release
	evict
	nudge // look after waiters that have died
)

// The parts of a view's text, in the order of their answers.
type part int

const (
	partFacts part = iota
	partTable
	partName
	partHolders
	partOwn
	partFront
	partBefore
	partWaiters
	partReplaceable
)

// text is the statements that make a view, beginning with the transaction and
// the lock; wants are the parts whose answers will come.
func (s *Store) text(q *question) (text string, wants []part) {
	var b strings.Builder
	of := fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, q.key)
	add := func(p part, statement string) {
		wants = append(wants, p)
		b.WriteString(statement + ";")
	}
	b.WriteString(s.dialect.Begin(lockWait) + ";")
	// Lock first; only later statements see what the last one has committed.
	fmt.Fprintf(&b, "UPDATE %s SET version=version+1 WHERE lock_key='%s' AND entry_id='';", s.table, q.key)
	add(partFacts, s.dialect.Facts())
	add(partTable, fmt.Sprintf("SELECT format,server,quiet FROM %s WHERE lock_key='' AND entry_id=''", s.table))
	add(partName, "SELECT "+nameColumns+of+" AND entry_id=''")
	add(partHolders, "SELECT "+columns+of+" AND state='H'")
	add(partOwn, "SELECT "+columns+of+" AND entry_id='"+q.mine.id+"'")
	const order = " ORDER BY place,ticket,entry_id"
	add(partFront, "SELECT "+columns+of+" AND state='W'"+order+" LIMIT "+strconv.Itoa(frontSize))
	if q.mode == join {
		p := place(q.mine.claim.Priority)
		if q.mine.claim.Ticket == 0 {
			add(partBefore, fmt.Sprintf("SELECT COUNT(*)%s AND state='W' AND place<=%d", of, p))
		} else if !q.near {
			add(partBefore, fmt.Sprintf("SELECT COUNT(*)%s AND state='W' AND (place<%d OR place=%d AND ticket<%d)", of, p, p, q.mine.claim.Ticket))
		}
		if q.noWait || q.maxQueue != nil || len(q.within) > 0 {
			add(partWaiters, "SELECT COUNT(*)"+of+" AND state='W'")
		}
		if q.mine.replaces != locks.ReplaceNone && q.mine.claim.Ticket == 0 {
			add(partReplaceable, "SELECT "+columns+of+" AND state='W' AND replaces<>''"+order)
		}
	}
	return b.String(), wants
}

// read makes a view of the answers.
func (s *Store) read(answers []Rows, wants []part) (*view, error) {
	if len(answers) != len(wants) {
		return nil, fmt.Errorf("%d answers to %d questions", len(answers), len(wants))
	}
	v := &view{}
	var n numbers
	for i, p := range wants {
		rows := answers[i]
		one := func(fields int) bool { return len(rows) == 1 && len(rows[0]) == fields }
		var err error
		switch p {
		case partFacts:
			if !one(4) {
				return nil, fmt.Errorf("the server does not tell its clock: %v", rows)
			}
			v.now, v.server, v.start, v.conn = n.read(rows[0][0]), rows[0][1], n.read(rows[0][2]), n.read(rows[0][3])
		case partTable:
			if one(3) { // who made the table by hand may have left it out
				if found := n.read(rows[0][0]); found != format {
					return nil, &refusal{err: &FormatError{Table: s.target.table, Found: rows[0][0]}}
				}
				v.tableServer, v.tableQuiet = rows[0][1], n.read(rows[0][2])
			}
		case partName:
			if one(9) {
				f := rows[0]
				v.name = &nameState{epoch: f[1], server: f[2], quiet: n.read(f[3]), ticket: n.read(f[4]), fence: n.read(f[5]), seen: n.read(f[6]), pace: n.read(f[7]), name: unescape(f[8])}
			}
		case partHolders:
			v.holders, err = parseRows(rows)
		case partOwn:
			if len(rows) == 1 {
				var own row
				own, err = parseRow(rows[0])
				v.own = &own
			}
		case partFront:
			v.front, err = parseRows(rows)
			v.more = len(v.front) == frontSize
		case partBefore:
			v.before = int(n.read(rows[0][0]))
		case partWaiters:
			v.waiters = int(n.read(rows[0][0]))
		case partReplaceable:
			v.replaceable, err = parseRows(rows)
		}
		if err != nil {
			return nil, err
		}
	}
	return v, n.err
}

func parseRows(rows Rows) ([]row, error) {
	all := make([]row, 0, len(rows))
	for _, f := range rows {
		r, err := parseRow(f)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// FormatError says that the table was made by another version.
type FormatError struct{ Table, Found string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("the table %s has format %s and this golock knows format %d: use the same version everywhere", e.Table, locks.Printable(e.Found, 20), format)
}

// lockWait is how long the server may let a transaction wait for the name's
// row. It is held for a few round trips only; who has died meanwhile loses it
// after the same time.
const lockWait = 2 * time.Second
