package sql

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// nameState is a name's own row.
type nameState struct {
	name     string
	epoch    string
	server   string // those of lately, the latest first
	quiet    int64  // nothing is granted before
	counter  int64  // numbers this step: its ticket, or fence, if it needs one
	seen     int64  // the counter of the step before; also when that was
	turn     int64  // the number that the step which locks the row has given itself
	interval int64  // about how long one grant follows the other while some wait
	granted  int64  // when the last such grant was
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
	living      bool  // only those that live were counted
	replaceable []row
}

// frontSize is how many waiters a view shows. More are not needed to know who
// is next.
const frontSize = 20

// question is what a caller wants to be done with its entry.
type question struct {
	mode     lease.Step
	key      string // hash of the name
	name     string // "" if only the ref is known
	mine     row    // what the caller knows of its entry
	known    bool   // mine is more than an id
	sent     bool   // a step of this entry may have been done already
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

// checkDead is a step that looks after waiters that have died.
const checkDead lease.Step = "check dead"

const (
	// nameColumns are read beside those of the entries, and are a name's.
	nameColumns = "epoch,server,quiet,seen,pace,granted,turn"
	inOrder     = " ORDER BY place,ticket,entry_id"
)

// text is the statements that make a view, beginning with the transaction and
// the lock. A new connection of a server that has a process for each has much to
// learn: few and simple statements make a short start.
func (s *Store) text(q *question) string {
	// Lock first; only later statements see what the last one has committed. A
	// row that somebody makes meanwhile is seen too, but not locked: it does not
	// have the number of this turn.
	q.turn = rand.Int64()
	statements := []string{
		s.dialect.Begin(lockWait),
		fmt.Sprintf("UPDATE %s SET seen=ticket,ticket=GREATEST(ticket+1,%s),turn=%d WHERE lock_key='%s' AND entry_id=''", s.table, s.dialect.Clock(), q.turn, q.key),
		"SELECT " + s.dialect.Facts() + ",format,server,quiet,seen FROM " + s.table + " WHERE lock_key='' AND entry_id=''",
		s.rows(q, usualRows(q)),
	}
	if q.replacing() {
		statements = append(statements, "SELECT "+columns+s.of(q)+" AND state='W' AND replaces<>''"+inOrder)
	}
	return strings.Join(statements, ";")
}

// rows reads the holders, the name's own row and the first waiters: so they
// follow each other in the order of states.
func (s *Store) rows(q *question, limit int) string {
	return "SELECT " + columns + "," + nameColumns + s.of(q) + " AND state>='" + holding + "' ORDER BY state,place,ticket,entry_id LIMIT " + strconv.Itoa(limit)
}

// usualRows is how many of them are enough if there are no more holders than
// the caller's own max allows.
func usualRows(q *question) int {
	holders := q.mine.claim.Max
	if holders == 0 {
		holders = frontSize
	}
	return holders + 1 + frontSize
}

func (s *Store) of(q *question) string {
	return fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, q.key)
}

// replacing reports whether the caller is a newcomer that may evict others.
func (q *question) replacing() bool {
	return q.mode == lease.Join && q.mine.replaces != locks.ReplaceNone && q.mine.claim.Ticket == 0
}

// read makes a view of the answers.
func (s *Store) read(q *question, answers []Rows) (v *view, err error) {
	if len(answers) != 2 && !q.replacing() || len(answers) != 3 && q.replacing() {
		return nil, fmt.Errorf("%d answers to a question", len(answers))
	}
	v = &view{}
	if len(answers[0]) == 0 {
		return v, nil // without its own row the table is of no use
	}
	if err = v.readTable(s, answers[0]); err == nil {
		err = v.readRows(q, answers[1], usualRows(q))
	}
	if err == nil && q.replacing() {
		v.replaceable, err = parseRows(answers[2])
	}
	return v, err
}

// readTable reads the table's own row, and what the server says of itself.
func (v *view) readTable(s *Store, rows Rows) (err error) {
	if len(rows) != 1 || len(rows[0]) != 9 {
		return errNotOurs
	}
	if v.facts, err = readFacts(Rows{rows[0][:5]}); err != nil {
		return err
	}
	var n numbers
	f := rows[0][5:]
	if n.read(f[0]) != format {
		return &FormatError{Table: s.target.table, Found: f[0]}
	}
	v.hasTable, v.tableServer, v.tableQuiet, v.tableMade = true, f[1], n.read(f[2]), n.read(f[3])
	return n.err
}

// readRows reads what rows has asked for.
func (v *view) readRows(q *question, rows Rows, limit int) error {
	entries := strings.Count(columns, ",") + 1
	v.name, v.own, v.holders, v.front = nil, nil, nil, nil
	var n numbers
	for _, f := range rows {
		if len(f) != entries+strings.Count(nameColumns, ",")+1 {
			return fmt.Errorf("a row with %d columns", len(f))
		}
		r, err := parseRow(f[:entries])
		if err != nil {
			return err
		}
		switch r.state {
		case nameRow:
			f = f[entries:]
			if !isPlain(f[0], f[1]) {
				return errNotOurs
			}
			v.name = &nameState{
				name: unescape(r.info), epoch: f[0], server: f[1], quiet: n.read(f[2]), counter: r.claim.Ticket, seen: n.read(f[3]),
				interval: n.read(f[4]), granted: n.read(f[5]), turn: n.read(f[6]),
			}
			continue
		case holding:
			v.holders = append(v.holders, r)
		case waiting:
			v.front = append(v.front, r)
		}
		if r.id == q.mine.id {
			v.own = &r
		}
	}
	v.more = len(rows) == limit
	v.waiters = len(v.front)
	return n.err
}

// short reports whether the rows that were read ended too early to know who
// holds and who is next.
func (v *view) short() bool { return v.more && (v.name == nil || len(v.front) < frontSize/2) }

// part is something else that a view may need.
type part int

const (
	partOwn    part = iota // the caller's row, if it was not among the others
	partCounts             // the numbers of the waiters, all and those before the caller
)

// rest is the statements for the parts that the question needs, "" for none.
func (s *Store) rest(q *question, v *view) (text string, parts []part) {
	var statements []string
	if q.mine.id != "" && v.own == nil && (q.mode != lease.Join || q.sent) {
		parts = append(parts, partOwn)
		statements = append(statements, "SELECT "+columns+s.of(q)+" AND entry_id='"+q.mine.id+"'")
	}
	if v.more && q.mode == lease.Join && !q.near {
		p := place(q.mine.claim.Priority)
		before := fmt.Sprintf("place<=%d", p)
		if t := q.mine.claim.Ticket; t != 0 {
			before = fmt.Sprintf("place<%d OR place=%d AND ticket<%d", p, p, t)
		}
		count := fmt.Sprintf("SELECT COUNT(*),COALESCE(SUM(CASE WHEN %s THEN 1 ELSE 0 END),0)%s AND state='W'", before, s.of(q))
		if v.living = q.maxQueue != nil; v.living { // that is in no index
			count += fmt.Sprintf(" AND ends>%d", v.now)
		}
		parts = append(parts, partCounts)
		statements = append(statements, count)
	}
	return strings.Join(statements, ";"), parts
}

// readRest reads what rest has asked for.
func (v *view) readRest(answers []Rows, parts []part) error {
	if len(answers) != len(parts) {
		return fmt.Errorf("%d answers to %d questions", len(answers), len(parts))
	}
	var n numbers
	for i, p := range parts {
		switch rows := answers[i]; p {
		case partOwn:
			all, err := parseRows(rows)
			if err != nil {
				return err
			}
			if len(all) > 0 {
				v.own = &all[0]
			}
		case partCounts:
			if len(rows) != 1 || len(rows[0]) != 2 {
				return fmt.Errorf("the server cannot count: %.200q", fmt.Sprint(rows))
			}
			v.waiters, v.before = int(n.read(rows[0][0])), int(n.read(rows[0][1]))
		}
	}
	return n.err
}

// facts is what a server says of itself.
type facts struct {
	now     int64
	server  string // which one it is
	start   int64  // when it was started
	conn    int64  // the connection's number
	account string // the connection's user, as the server knows it
}

func readFacts(rows Rows) (facts, error) {
	if len(rows) != 1 || len(rows[0]) != 5 {
		return facts{}, fmt.Errorf("the server does not tell its clock: %.200q", fmt.Sprint(rows))
	}
	f := rows[0]
	var n numbers
	return facts{now: n.seconds(f[0]), server: f[1], start: n.seconds(f[2]), conn: n.read(f[3]), account: f[4]}, n.err
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
