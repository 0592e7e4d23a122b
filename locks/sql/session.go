package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// session is at most one connection, which is opened when it is needed and never
// used again after an error. One goroutine at a time uses it; others wait.
type session struct {
	store *Store

	// Called when the server has taken a connection, and when it has let it in. Both may be nil.
	onConnect, onLogin func()

	mu     sync.Mutex
	conn   Conn
	number int64 // the number of the connection at the server; 0 if it is not known yet
	facts  facts // of the server, when it was last asked over the connection
}

// disconnect closes the connection until the session is used again.
func (c *session) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeConn()
}

func (c *session) closeConn() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// shape is what the rows that a statement gives must look like.
type shape struct {
	columns int
	least   int // how many rows there are in any case
}

func (want shape) fits(rows Rows) bool {
	isOther := func(line []string) bool { return len(line) != want.columns }
	return len(rows) >= want.least && !slices.ContainsFunc(rows, isOther)
}

// ask sends statements. There is one shape for each of them that gives rows. An error costs
// the connection.
func (c *session) ask(ctx context.Context, text string, want ...shape) ([]Rows, error) {
	answers, err := c.askAny(ctx, text)
	if err == nil && !slices.EqualFunc(want, answers, shape.fits) {
		c.closeConn()
		// This is an outage, no refusal: it may be another server at the moment.
		err = fmt.Errorf("the server answers something else than it was asked: %.200q", fmt.Sprint(answers))
	}
	return answers, err
}

// askAny is ask for statements that others have written. It opens a connection if there is none.
func (c *session) askAny(ctx context.Context, text string) (answers []Rows, err error) {
	if err = c.open(ctx); err == nil {
		answers, err = c.conn.Run(ctx, text)
	}
	if err != nil {
		c.closeConn()
	}
	return answers, err
}

// guard runs f with the session locked. After an error the connection is closed.
func (c *session) guard(f func() error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if err != nil {
			c.closeConn()
		}
	}()
	defer locks.Recover(&err)
	return f()
}

// once repeats an operation until it succeeds, fails for good, or its time is over. Without
// a table there is nothing to do.
func (c *session) once(ctx context.Context, do func(context.Context) error) error {
	s := c.store
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	return lease.Located(s.URL(), lease.Retry(ctx, s.URL(), func() error {
		// An answer of the largest size may take seconds. A server that says nothing is asked twice.
		ctx, cancel := context.WithTimeout(ctx, lease.ListLimit/2)
		defer cancel()
		err := c.guard(func() error { return do(ctx) })
		if s.verdict(err) == NoTable {
			return nil
		}
		return s.judge(err, lease.ForGood)
	}))
}

// mostImmediate is how often a step is tried again without a pause. In a crowd deadlocks go on.
const mostImmediate = 8

// step makes one step: it looks, decides, writes, and wakes waiters. It tries again what can
// succeed at once.
func (c *session) step(ctx context.Context, q *question) (*step, error) {
	s := c.store
	doubtful, standbys, immediate, useless := false, 0, 0, 0
	for {
		host, fresh := s.host.Load(), c.conn == nil
		t, err := c.attempt(ctx, q)
		sent := t != nil
		doubtful = doubtful || err != nil && sent
		verdict := s.verdict(err)
		noName, noTable := errors.Is(err, errNoName), verdict == NoTable
		switch {
		case err == nil:
			t.answer.Doubtful = doubtful
			return t, nil
		case (noName || noTable) && q.name == "": // nor has the name any entries
			c.closeConn()
			nothing := queue.Decide(queue.View{}, q.Question)
			return &step{answer: lease.Answer{Outcome: queue.Outcome{Verdict: nothing.Verdict}}}, nil
		case noName, noTable, errors.Is(err, errNoTableRow):
			useless, err = c.makeMissing(ctx, q, err, useless)
		case errors.Is(err, errNameExists):
			useless++
			err = c.hidden(q, errNoName, useless)
		case verdict == Standby && standbys < len(s.target.hosts)-1: // another one may be the primary
			standbys++
			s.useNextHost(host)
			err = nil
		case !fresh && !sent && (verdict == Transient || verdict == Passing) && !lease.IsFinal(err):
			err = nil // perhaps of a connection that had ended
		}
		if s.verdict(err) == AtOnce && immediate < mostImmediate {
			immediate++
			err = nil
		}
		if err != nil {
			if sent && errors.Is(err, context.DeadlineExceeded) {
				s.hung.Store(host + 1)
			}
			s.useNextHost(host)
			return nil, s.judge(err, q.refusalKind())
		}
		if ctx.Err() != nil {
			return nil, lease.NoAnswer{Cause: context.Cause(ctx)}
		}
	}
}

// makeMissing makes what a step has not found: the row of the name, that of the table, or the table. useless
// is how often in succession it was there then. Somebody else may have made it; but if that goes on, the
// server hides it from a step.
func (c *session) makeMissing(ctx context.Context, q *question, missing error, useless int) (int, error) {
	var isMade bool
	var err error
	if errors.Is(missing, errNoName) {
		isMade, err = c.makeName(ctx, q)
	} else {
		isMade, err = c.makeTable(ctx, q, errors.Is(missing, errNoTableRow))
	}
	if isMade || err != nil {
		return 0, err
	}
	useless++
	return useless, c.hidden(q, missing, useless)
}

// hidden is the error of something that was not found and could not be made because it exists, if that has
// happened too often.
func (c *session) hidden(q *question, missing error, useless int) error {
	if useless < mostImmediate {
		return nil
	}
	return &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
		"the table %s: %w, and yet it cannot be made: it exists (does a trigger or a policy hide or change it?)",
		c.store.target.table, missing)}
}

// attempt gives a step with an error if it may have been made all the same.
func (c *session) attempt(ctx context.Context, q *question) (*step, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	sent := locks.BootTime() // a lease counts from here, however long the login has taken
	if q.mayBeTurnedAway() && !c.store.hasSeveralHosts() {
		t, err := c.turnedAway(ctx, q)
		if t != nil || err != nil {
			return t, err
		}
	}
	v, err := c.look(ctx, q)
	if err != nil {
		return nil, err
	}
	c.observe(&v.facts)
	t, err := c.store.decide(q, v)
	if err != nil {
		return nil, err
	}
	t.sent = sent
	text := t.finish()
	if text == rollback && t.isRefusal() && c.isDirect() {
		// The connection is of no use any more. Its end ends the transaction, too, without an answer. A pooler
		// would have to replace its own connection.
		c.closeConn()
		return t, nil
	}
	_, err = c.ask(ctx, text)
	if v.isNewName && c.store.verdict(err) == Exists {
		return nil, errNameExists
	}
	if err != nil {
		return t, err
	}
	c.wake(ctx, q, t.sleepers, false)
	if t.again && c.passOver(ctx, q) != nil { // the next to look does it
		c.closeConn()
	}
	return t, nil
}

// turnedAway gives the step of a newcomer that is turned away, or nil if it may get the slot or a place. It
// locks nothing: each of a crowd would hold up all others for a round trip, until they are refused
// because that took too long. What it reads was so at some moment since it asked, which is all that a
// locked row would tell of a slot that others have.
func (c *session) turnedAway(ctx context.Context, q *question) (*step, error) {
	s := c.store
	statements, shapes := s.viewText(q, queue.ShownPlaces)
	answers, err := c.ask(ctx, s.dialect.Begin+";"+strings.Join(statements, ";")+";ROLLBACK", shapes...)
	if s.canBeBrief(err) {
		return nil, nil // what is wrong shows in the step
	}
	if err != nil {
		return nil, err
	}
	v := &view{limit: queue.ShownPlaces}
	err = v.read(s, q, answers)
	isSure := err == nil && v.name != nil && v.name.name == q.name && !v.short() && s.revoke(q, v) == ""
	if !isSure {
		return nil, nil // what is wrong shows in the step
	}
	c.observe(&v.facts)
	t, err := s.decide(q, v)
	if err != nil || t.answer.Verdict != queue.Busy || t.answer.Quarantine > 0 {
		return nil, nil
	}
	return t, nil
}

// observe keeps what the server says of itself. If the connection's number there is not still
// this one, a pooler or proxy shares connections out: nobody can be woken over them.
func (c *session) observe(f *facts) {
	c.store.maxConns.Store(f.maxConns)
	c.facts = *f
	if c.number == 0 {
		c.number = f.conn
	}
	if c.number != f.conn && c.store.target.waiters != 0 {
		c.store.noNotify.Store(true)
	}
}

// isDirect reports whether the session has a connection over which a step was made, and that is no pooler's.
func (c *session) isDirect() bool {
	return c.conn != nil && c.facts.conn != 0 && c.facts.conn == c.number
}

// look locks the name's row and reads the queue. It revokes offers that were not accepted in
// time: from then on they cannot be accepted.
func (c *session) look(ctx context.Context, q *question) (*view, error) {
	s := c.store
	v := &view{limit: queue.ShownPlaces}
	for text := s.lockText(q); ; {
		statements, shapes := s.viewText(q, v.limit)
		answers, err := c.ask(ctx, text+strings.Join(statements, ";"), shapes...)
		if err == nil {
			err = v.read(s, q, answers)
		}
		switch {
		case s.canBeBrief(err):
			text = s.lockText(q) // that transaction has ended with its connection
			continue
		case err != nil:
			return nil, err
		case v.begin(q):
			return v, nil
		case v.name == nil, v.name.turn != q.turn: // or somebody has just made the name
			return nil, errNoName
		case q.name != "" && v.name.name != q.name:
			return nil, &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
				"the hash of the name %q is also that of %q, which is in use: choose another name", q.name, locks.Printable(v.name.name, 300))}
		}
		text = s.revoke(q, v)
		if v.short() {
			v.limit *= 4
		} else if text == "" {
			return v, nil
		}
	}
}

// canBeBrief reports whether an answer was too long that may be shorter. From now on less of each row is read.
func (s *Store) canBeBrief(err error) bool {
	return errors.Is(err, network.ErrTooLong) && s.isBrief.CompareAndSwap(false, true)
}

// revoke is the statements that remove waiters whose offers are void. Like all waiters that
// were taken for dead they get their old place when they ask again.
func (s *Store) revoke(q *question, v *view) string {
	text := ""
	for i := range v.holders {
		h := &v.holders[i]
		if h.State != queue.Offered || h.due > v.now {
			continue
		}
		verb := "DELETE FROM " + s.table
		if h.Evicted != "" { // a tombstone tells it
			verb = fmt.Sprintf("UPDATE %s SET state='G',ends=%d,slots=''", s.table, v.now)
		}
		text += fmt.Sprintf("%s WHERE lock_key='%s' AND entry_id='%s' AND state='O';", verb, q.key, h.ID)
	}
	return text
}

// open connects to one of the hosts, beginning with the one that worked last.
func (c *session) open(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	s := c.store
	hosts := s.target.hosts
	host := s.host.Load()
	ctx, cancel := context.WithTimeout(ctx, s.target.connectTimeout)
	defer cancel()
	conn, number, err := s.dialect.Connect(ctx, s.target, hosts[int(host)%len(hosts)], func() { call(c.onConnect) })
	if err != nil {
		s.useNextHost(host)
		return err
	}
	c.conn, c.number, c.facts = conn, number, facts{}
	call(c.onLogin)
	return nil
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// hasSeveralHosts reports whether the URL names several hosts. A primary that was replaced and came back
// without its standbys still answers what it knows, but its commits hang.
func (s *Store) hasSeveralHosts() bool { return len(s.target.hosts) > 1 }

// useNextHost makes the next attempt go to the host after the one that failed. It passes over a host
// whose commit hung, once: an attempt there takes all of its time.
func (s *Store) useNextHost(failed int64) {
	next, hosts := failed+1, int64(len(s.target.hosts))
	hung := s.hung.Load()
	if hung > 0 && (hung-1)%hosts == next%hosts {
		s.hung.CompareAndSwap(hung, 0)
		next++
	}
	s.host.CompareAndSwap(failed, next)
}
