package sql

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// nameState is a name's own row.
type nameState struct {
	name       string
	epoch      string
	servers    string // the servers on which the name was used last, the latest one first
	quarantine int64  // when the quarantine ends
	counter    int64  // the last of this step's numbers
	seen       int64  // the counter of the step before, which is also the time of that step
	turn       int64  // a random number of the attempt that has locked the row
	low        string // at or before the order of the first waiter; a waiter with a lower order has to ask again
	late       int64  // when all of the first StepPlaces waiters are overdue
	moved      int64  // the counter of the last step that changed the place of a waiter
}

// view is what one attempt read while it held the lock on the name's row. Until the end of
// its transaction others only prolong places and accept offers, each in a row of its own.
type view struct {
	facts
	tableServer     string
	tableQuarantine int64
	tableMade       int64
	name            *nameState // nil if the name has no row yet
	isNewName       bool       // the step makes the row

	holders     []row
	front       []row // the first waiters, in their order
	limit       int   // how many of the first waiters were asked for
	shown       int   // how many of them were read, valid or not
	callerRow   *row  // the row of the entry that asks, in whatever state; nil if it has none
	ahead       int   // the number of waiters before the entry that joins, or joins again
	waiters     int   // the number of all waiters; only of those that are alive, if the entry may be turned away
	replaceable []row // the waiters that may be replaced
	invalid     []row // the rows with a flaw whose time is not over: entries, and the name's own row
}

// stepNumbers is how many numbers a step reserves when it locks the row: a ticket and a fence.
const stepNumbers = 2

// question is what a caller asks for its entry, and what the caller knows of the entry from the last answer.
type question struct {
	queue.Question
	key  string // hash of the name
	name string // empty if only the ref is known; then the row has only ID and TTL
	row  row
	turn int64 // the random number of the attempt (nameState.turn)

	laterHold int64 // the hold that counts from the step Hold, in us

	isCrowded bool // an earlier attempt failed: it was refused, or not answered in time

	place int   // the place of the entry when it looked last; 0 if that is not known
	moved int64 // nameState.moved when the place was counted
	pace  queue.Pace
}

func (q *question) isNew() bool { return q.Step == queue.Join && q.row.Claim.Ticket == 0 }

// mayBeTurnedAway reports whether a newcomer asks that may not wait in every queue, and
// many others ask at the same time.
func (q *question) mayBeTurnedAway() bool {
	return q.isCrowded && q.isNew() && q.name != "" && (q.NoWait || q.MaxQueue != nil)
}

// refusalKind returns the kind of a refusal because of what somebody has changed. A caller with an entry has
// got another answer before. It tries again, because somebody may undo the change.
func (q *question) refusalKind() lease.RefusalKind {
	if q.Step.HasEntry() || q.row.Claim.Ticket != 0 {
		return lease.ForNewcomers
	}
	return lease.ForGood
}

// nameColumns are the columns that only a name's row uses.
const nameColumns = "LEFT(name,766),LEFT(epoch,65),LEFT(servers,1609),quiet,seen,counter,turn,LEFT(low,33),late,moved"

// entryCount is how many columns an entry has.
const entryCount = 17

// nameCount and factCount are the numbers of columns in nameColumns and factColumns.
const (
	nameCount = 10
	factCount = 6
)

// oneNumber is the shape of the answer to a count.
var oneNumber = shape{1, 1}

// factColumns returns the columns with the server's clock and its Facts.
func (s *Store) factColumns() string { return s.dialect.Clock + "," + s.dialect.Facts }

// lockText returns the statements that begin the transaction and lock the name's row.
func (s *Store) lockText(q *question) string {
	// The lock comes first: only later statements see what the last step has committed. They also see
	// a row that somebody has just made. That row is not locked, and lacks the number of this turn.
	// The statement also repairs the state of the row, which somebody may have changed.
	return s.dialect.Begin + fmt.Sprintf(
		";UPDATE %[1]s SET state='%[7]c',seen=counter,counter=GREATEST(LEAST(counter,%[6]d)+%[2]d,%[3]s),turn=%[4]d"+
			" WHERE lock_key='%[5]s' AND entry_id='';",
		s.table, stepNumbers, s.dialect.Clock, q.turn, q.key, locks.MaxNumber, nameRow)
}

// viewText returns the statements that read what a decision needs: the table's own row with the server's
// facts, and entries. It also returns the shapes of their rows.
func (s *Store) viewText(q *question, limit int) (statements []string, shapes []shape) {
	of := fmt.Sprintf(" FROM %s WHERE lock_key='%s'", s.table, q.key)
	const waiting = " AND state='W'"
	few, many := selected, selectedMany
	if s.isBrief.Load() {
		few, many = selectedBrief, selectedBrief
	}
	statements = []string{
		"SELECT format,LEFT(servers,1609),quiet,made," + s.factColumns() + " FROM " + s.table +
			" WHERE lock_key='' AND entry_id=''",
		"SELECT " + nameColumns + of + " AND entry_id=''",
		// An entry has the state N only if somebody has changed it.
		"SELECT " + many + of + " AND state IN ('N','H','O','E') AND entry_id<>''",
		// The search begins at low, because the index may still have many removed rows before it.
		"SELECT " + few + of + waiting + " AND ord>=(SELECT low" + of + " AND entry_id='')" +
			" ORDER BY ord,entry_id LIMIT " + strconv.Itoa(limit),
		"SELECT " + selected + of + " AND entry_id='" + q.row.ID + "'",
	}
	entry := shape{columns: entryCount}
	shapes = []shape{{columns: 4 + factCount}, {columns: nameCount}, entry, entry, entry}
	if q.Step == queue.Join { // the entry may be far behind the waiters that are read
		claim := q.row.Claim
		if q.isNew() {
			claim.Ticket = 1<<63 - 1
		}
		count := "SELECT COALESCE(SUM(CASE WHEN ord<'" + order(claim) + "' THEN 1 ELSE 0 END),0),COUNT(*)" + of + waiting
		// The replaceable waiters are subtracted from this count. While the name is locked nobody joins or leaves
		// between the two statements. A waiter whose time ends just then may be subtracted uncounted: the queue is
		// then longer by one than --max-queue says, by a waiter that was alive when the step began. Without the
		// lock (session.turnedAway) the difference leads to a step with it, or to an answer that was true at the
		// moment of the count.
		if q.NoWait || q.MaxQueue != nil || q.Within != nil { // not in other cases, because no index has this column
			count += " AND ends>" + s.dialect.Clock
		}
		statements, shapes = append(statements, count), append(shapes, shape{2, 1})
	}
	if q.isNew() && q.row.Replace != locks.ReplaceNone {
		statements = append(statements, "SELECT "+many+of+waiting+" AND replaces<>'' ORDER BY ord,entry_id")
		shapes = append(shapes, entry)
	}
	return statements, shapes
}

// readTable reads the table's own row, and what the server says of itself.
func (v *view) readTable(s *Store, q *question, line []string) (err error) {
	var found int64
	if err = scan(line, &found, &v.tableServer, &v.tableQuarantine, &v.tableMade); err != nil {
		return err
	}
	if err = s.checkFormat(found); err != nil {
		return &lease.Refusal{Err: err, Kind: q.refusalKind()}
	}
	if v.facts, err = readFacts(line[4:]); err != nil {
		return err
	}
	isTime := 0 <= v.tableMade && v.tableMade <= locks.MaxMoment
	if !isTime || !v.isQuarantine(v.tableQuarantine) {
		return &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
			"the table %s: its own row is not what golock has written: quiet %d, made %d (golock clean removes it)",
			s.target.table, v.tableQuarantine, v.tableMade)}
	}
	return nil
}

// checkFormat refuses the table of another version.
func (s *Store) checkFormat(found int64) error {
	if found == format {
		return nil
	}
	return fmt.Errorf("the table %s has format %d and this golock knows format %d: use the same version everywhere: "+
		"stop all others and drop the table, or name another ?table=", s.target.table, found, format)
}

// isQuarantine reports whether golock can have written that end of a quarantine, which lasts for the longest
// TTL at most.
func (f *facts) isQuarantine(end int64) bool { return 0 <= end && end <= f.now+micros(locks.MaxTTL) }

// read reads the answers to the statements of viewText, in their order.
func (v *view) read(s *Store, q *question, answers []Rows) (err error) {
	if len(answers[0]) == 0 {
		return errNoTableRow
	}
	if err := v.readTable(s, q, answers[0][0]); err != nil {
		return err
	}
	v.name, v.holders, v.callerRow, v.invalid = nil, nil, nil, nil
	if len(answers[1]) > 0 {
		v.readName(answers[1][0])
	}
	v.holders = v.parseRows(answers[2])
	v.shown = len(answers[3])
	v.front = v.parseRows(answers[3])
	if rows := answers[4]; len(rows) > 0 && q.row.ID != "" {
		r := parseRow(rows[0])
		v.callerRow = &r
		isNoted := func(noted row) bool { return noted.ID == r.ID }
		if r.State != queue.Tombstone && !slices.ContainsFunc(v.invalid, isNoted) { // it has an unknown state, or is far back
			v.isValid(&r)
		}
	}
	if len(answers) > 5 {
		err = scan(answers[5][0], &v.ahead, &v.waiters)
	}
	if len(answers) > 6 {
		v.replaceable = v.parseRows(answers[6])
	}
	return err
}

// begin gives a name without a row the state that a new row has when it is locked for the first time. It
// returns false if the name has a row, or has entries but no row.
func (v *view) begin(q *question) bool {
	hasEntries := len(v.holders)+len(v.invalid)+v.shown+v.waiters > 0 || v.callerRow != nil
	if v.name != nil || q.name == "" || hasEntries {
		return false
	}
	v.name, v.isNewName = &nameState{name: q.name, counter: v.now, turn: q.turn}, true
	return true
}

// isValid reports whether a row has no flaw. It notes a row that has one and whose time is not over.
func (v *view) isValid(r *row) bool {
	if r.flaw != nil && (r.isName() || r.until() > v.now) {
		v.invalid = append(v.invalid, *r)
	}
	return r.flaw == nil
}

// parseRows returns the valid entries. It notes the others (isValid).
func (v *view) parseRows(rows Rows) []row {
	all := make([]row, 0, len(rows))
	for _, f := range rows {
		if r := parseRow(f); v.isValid(&r) {
			all = append(all, r)
		}
	}
	return all
}

// readName reads the row of the name. One with a flaw is noted among the invalid rows.
func (v *view) readName(line []string) {
	n := &nameState{name: unescape(line[0])}
	v.name = n
	r := row{Entry: queue.Entry{State: nameRow}}
	_ = scan(line[6:], &n.turn) // turn is read before a flaw can stop the scan, because it tells whether the row is locked
	err := scan(line[1:], &n.epoch, &n.servers, &n.quarantine, &n.seen, &n.counter, &n.turn, &n.low, &n.late, &n.moved)
	switch {
	case err != nil:
		r.flaw = err
	case len(line[0]) > maxName:
		r.flaw = errors.New("a longer text than there can be")
	case !isPlain(line[0], n.epoch, n.servers, n.low):
		r.flaw = errors.New("letters that need quoting")
	case n.seen < 0 || n.seen > locks.MaxNumber:
		r.flaw = fmt.Errorf("counter %d", n.seen)
	case n.moved < 0 || n.moved > locks.MaxNumber:
		r.flaw = fmt.Errorf("moved %d", n.moved)
	case n.late < 0 || n.late > locks.MaxMoment:
		r.flaw = fmt.Errorf("late %d", n.late)
	case !v.isQuarantine(n.quarantine):
		r.flaw = fmt.Errorf("quiet %d", n.quarantine)
	}
	v.isValid(&r)
}

// needsMore reports whether more waiters must be read to find the next one, because too many of those that were
// read are overdue.
func (v *view) needsMore() bool {
	present := 0
	for i := range v.front {
		if v.front[i].due > v.now {
			present++
		}
	}
	return v.hasMore() && present < v.limit/2
}

// hasMore reports whether there may be waiters behind those that were read.
func (v *view) hasMore() bool { return v.shown == v.limit }

// facts is what a server says of itself.
type facts struct {
	now      int64
	server   string // which server it is
	start    int64  // when the server was started
	conn     int64  // the number of the connection at the server
	login    string // account and server; only a client with the same login can end the statement of another one
	maxConns int64  // the number of connections that the server allows at a time
}

// readFacts reads the columns of factColumns.
func readFacts(line []string) (f facts, err error) {
	var account string
	err = scan(line, &f.now, &f.server, &f.start, &f.conn, &account, &f.maxConns)
	f.login = escape(account+" "+f.server, maxLogin)
	if err == nil && (f.now < 0 || f.now > locks.MaxMoment || f.start < 0 || f.start > locks.MaxMoment) {
		err = network.Damaged("the time %d of a server that was started at %d", f.now, f.start)
	}
	return f, err
}
