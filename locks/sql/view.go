package sql

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golock/locks"
)

// nameState is a name's own row.
type nameState struct {
	name    string
	epoch   string
	server  string // those of lately, the latest first
	quiet   int64  // nothing is granted before
	counter int64  // numbers this step: its ticket, or fence, if it needs one
	seen    int64  // the counter of the step before; also when that was
	turn    int64  // the number that the step which locks the row has given itself
	pace    int64  // about how long one grant follows the other while some wait
	granted int64  // when the last such grant was
}

// view is what one attempt read, while it held the lock on the name's row:
// nobody else changes anything of the name until it ends.
type view struct {
	facts

	hasTable    bool // the table's own row is there
	tableServer string
	tableQuiet  int64
	tableMade   int64
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
	turn     int64 // of the attempt
}

type mode int

const (
	join mode = iota
	renew
	release
	quit // release, for one that does not know of a grant: it has no hold
	evict
	nudge // look after waiters that have died
)

// The statements that make a view, by what they answer.
type part int

const (
	partFacts part = iota
	partNames
	partEntries
	partFront
	partReplaceable
)

const (
	nameColumns = "lock_key,epoch,server,quiet,ticket,seen,pace,granted,info,format,turn"
	inOrder     = " ORDER BY place,ticket,entry_id"
)

// text is the statements that make a view, beginning with the transaction and
// the lock; wants are the parts whose answers will come. A new connection of a
// server that has a process for each has much to learn: few and simple
// statements make a short start.
func (s *Store) text(q *question) (text string, wants []part) {
	var b strings.Builder
	of := s.of(q)
	add := func(p part, statement string) {
		wants = append(wants, p)
		b.WriteString(statement + ";")
	}
	b.WriteString(s.dialect.Begin(lockWait) + ";")
	// Lock first; only later statements see what the last one has committed. A
	// row that somebody makes meanwhile is seen too, but not locked: it does not
	// have the number of this turn.
	q.turn = rand.Int64()
	fmt.Fprintf(&b, "UPDATE %s SET seen=ticket,ticket=GREATEST(ticket+1,%s),turn=%d WHERE lock_key='%s' AND entry_id='';",
		s.table, s.dialect.Clock(), q.turn, q.key)
	add(partFacts, s.dialect.Facts())
	add(partNames, fmt.Sprintf("SELECT %s FROM %s WHERE lock_key IN ('','%s') AND entry_id=''", nameColumns, s.table, q.key))
	entries := "SELECT " + columns + of + " AND state='H'"
	if q.mine.id != "" {
		entries += " UNION ALL SELECT " + columns + of + " AND entry_id='" + q.mine.id + "'"
	}
	add(partEntries, entries)
	add(partFront, "SELECT "+columns+of+" AND state='W'"+inOrder+" LIMIT "+strconv.Itoa(frontSize))
	if q.mode == join && q.mine.replaces != locks.ReplaceNone && q.mine.claim.Ticket == 0 {
		add(partReplaceable, "SELECT "+columns+of+" AND state='W' AND replaces<>''"+inOrder)
	}
	return b.String(), wants
}

func (s *Store) of(q *question) string {
	return fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, q.key)
}

// counts is a statement that counts the waiters, all and those before the
// caller, if there are more than a view shows and it matters; "" if not.
func (s *Store) counts(q *question, v *view) string {
	if !v.more || q.mode != join || q.near {
		return ""
	}
	p := place(q.mine.claim.Priority)
	before := fmt.Sprintf("place<=%d", p)
	if t := q.mine.claim.Ticket; t != 0 {
		before = fmt.Sprintf("place<%d OR place=%d AND ticket<%d", p, p, t)
	}
	return fmt.Sprintf("SELECT COUNT(*),COALESCE(SUM(CASE WHEN %s THEN 1 ELSE 0 END),0)%s AND state='W'", before, s.of(q))
}

// read makes a view of the answers.
func (s *Store) read(q *question, answers []Rows, wants []part) (*view, error) {
	if len(answers) != len(wants) {
		return nil, fmt.Errorf("%d answers to %d questions", len(answers), len(wants))
	}
	v := &view{}
	var n numbers
	for i, p := range wants {
		rows := answers[i]
		var err error
		switch p {
		case partFacts:
			v.facts, err = readFacts(rows)
		case partNames:
			for _, f := range rows {
				if len(f) != strings.Count(nameColumns, ",")+1 {
					return nil, fmt.Errorf("a name's row with %d columns", len(f))
				}
				if f[0] == "" { // the table's
					v.hasTable = true
					if found := n.read(f[9]); found != format {
						return nil, &FormatError{Table: s.target.table, Found: f[9]}
					}
					v.tableServer, v.tableQuiet, v.tableMade = f[2], n.read(f[3]), n.read(f[5])
					continue
				}
				if !isPlain(f[1], f[2]) {
					return nil, errNotOurs
				}
				v.name = &nameState{epoch: f[1], server: f[2], quiet: n.read(f[3]), counter: n.read(f[4]), seen: n.read(f[5]), pace: n.read(f[6]), granted: n.read(f[7]), turn: n.read(f[10]), name: unescape(f[8])}
			}
		case partEntries:
			var all []row
			all, err = parseRows(rows)
			for _, r := range all {
				own := r.id == q.mine.id
				if own && v.own != nil {
					continue // a holder's own comes twice
				}
				if own {
					v.own = &r
				}
				if r.state == holding {
					v.holders = append(v.holders, r)
				}
			}
		case partFront:
			v.front, err = parseRows(rows)
			v.more = len(v.front) == frontSize
			v.waiters = len(v.front)
		case partReplaceable:
			v.replaceable, err = parseRows(rows)
		}
		if err != nil {
			return nil, err
		}
	}
	return v, n.err
}

// facts is what a server says of itself.
type facts struct {
	now    int64
	server string // which one it is
	start  int64  // when it was started
	conn   int64  // the connection's number
}

func readFacts(rows Rows) (facts, error) {
	if len(rows) != 1 || len(rows[0]) != 4 {
		return facts{}, fmt.Errorf("the server does not tell its clock: %.200q", fmt.Sprint(rows))
	}
	f := rows[0]
	var n numbers
	return facts{now: n.seconds(f[0]), server: f[1], start: n.seconds(f[2]), conn: n.read(f[3])}, n.err
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
