package sql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// session has at most one connection. It opens the connection when it needs one, and closes it after an
// error. One goroutine at a time uses the session; others wait.
type session struct {
	store *Store

	// The session calls them when the server has taken a connection, and when the login has succeeded. Both may
	// be nil.
	onConnect, onLogin func()

	mu     sync.Mutex
	conn   Conn
	host   int64 // the host that conn leads to, or that could not be connected to last; as Store.host
	number int64 // the number of the connection at the server; 0 if it is not known yet
	facts  facts // the answer of the server when it was last asked over this connection
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

// shape is what the rows of a statement must look like.
type shape struct {
	columns int
	least   int // the smallest number of rows
}

func (want shape) fits(rows Rows) bool {
	isOther := func(line []string) bool { return len(line) != want.columns }
	return len(rows) >= want.least && !slices.ContainsFunc(rows, isOther)
}

// ask sends statements. want has one shape for each statement that gives rows. After an error ask closes the
// connection.
func (c *session) ask(ctx context.Context, text string, want ...shape) ([]Rows, error) {
	answers, err := c.askAny(ctx, text)
	if err == nil && !slices.EqualFunc(want, answers, shape.fits) {
		c.closeConn()
		// This counts as an outage, not as a refusal: another server may answer at the moment.
		err = fmt.Errorf("the server answers something else than it was asked: %.200q", fmt.Sprint(answers))
	}
	return answers, err
}

// askAny is ask without a check of the shapes. It opens a connection if there is none.
func (c *session) askAny(ctx context.Context, text string) (answers []Rows, err error) {
	if err = c.open(ctx); err == nil {
		answers, err = c.conn.Run(ctx, text)
	}
	if err != nil {
		c.closeConn()
	}
	return answers, err
}

// guard runs f with the session locked. After an error it closes the connection.
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

// retryCall repeats an operation until it succeeds, fails for good, or its time is over. It also succeeds if
// there is no table.
func (c *session) retryCall(ctx context.Context, do func(context.Context) error) error {
	s := c.store
	ctx, cancel := context.WithTimeout(ctx, lease.ListLimit)
	defer cancel()
	return lease.Located(s.URL(), lease.Retry(ctx, s.URL(), func() error {
		// An answer of the largest size may take seconds. A server that says nothing is asked twice.
		ctx, cancel := context.WithTimeout(ctx, lease.ListLimit/2)
		defer cancel()
		err := c.guard(func() error { return do(ctx) })
		if s.kindOf(err) == NoTable {
			return nil
		}
		return s.asRefusal(err, lease.ForGood)
	}))
}

// mostImmediate limits how often a step is tried again without a pause: among many clients deadlocks go on.
const mostImmediate = 8

// makeStep makes one step: it looks, decides, writes, and wakes waiters. It tries again what can succeed at
// once.
func (c *session) makeStep(ctx context.Context, q *question) (*step, error) {
	s := c.store
	mayBeDone := false    // an attempt that failed may have been committed
	standbysTried := 0    // hosts that refused to write
	immediateRetries := 0 // attempts that were made without a pause
	futileCreations := 0  // how often in succession a row or table was missing, and could not be made as it existed
	for {
		fresh := c.conn == nil
		t, err := c.tryStep(ctx, q)
		sent := t != nil
		mayBeDone = mayBeDone || err != nil && sent
		kind := s.kindOf(err)
		noName, noTable := errors.Is(err, errNoName), kind == NoTable
		switch {
		case err == nil:
			t.answer.Doubtful = mayBeDone
			return t, nil
		case (noName || noTable) && q.name == "": // without the name's row there are no entries either
			c.closeConn()
			nothing := queue.Decide(queue.View{}, q.Question)
			return &step{answer: lease.Answer{Outcome: queue.Outcome{Verdict: nothing.Verdict}}}, nil
		case noName, noTable, errors.Is(err, errNoTableRow):
			futileCreations, err = c.makeMissing(ctx, q, err, futileCreations)
		case errors.Is(err, errNameExists):
			futileCreations++
			err = c.hidden(q, errNoName, futileCreations)
		case kind == Standby && standbysTried < len(s.target.hosts)-1: // another host may be the primary
			standbysTried++
			s.useNextHost(c.host)
			err = nil
		case !fresh && !sent && (kind == Transient || kind == Passing) && !lease.IsFinal(err):
			err = nil // the connection may have ended before the request
		}
		if s.kindOf(err) == AtOnce && immediateRetries < mostImmediate {
			immediateRetries++
			err = nil
		}
		if err != nil {
			if sent && errors.Is(err, context.DeadlineExceeded) {
				s.hung.Store(c.host + 1)
			}
			s.useNextHost(c.host)
			return nil, s.asRefusal(err, q.refusalKind())
		}
		if ctx.Err() != nil {
			return nil, lease.NoAnswer{Cause: context.Cause(ctx)}
		}
	}
}

// makeMissing makes what a step has not found: the row of the name, that of the table, or the table. futile
// is how often in succession it then existed already; makeMissing returns the new number. Somebody else may
// have made it. If that happens again and again, the server hides it from the step.
func (c *session) makeMissing(ctx context.Context, q *question, missing error, futile int) (int, error) {
	var isMade bool
	var err error
	switch {
	case errors.Is(missing, errNoName):
		isMade, err = c.makeName(ctx, q)
	case errors.Is(missing, errNoTableRow):
		isMade, err = c.makeTableRow(ctx, q)
	default:
		isMade, err = c.makeTable(ctx, q)
	}
	if isMade || err != nil {
		return 0, err
	}
	futile++
	return futile, c.hidden(q, missing, futile)
}

// hidden returns an error if something is hidden from the steps: they do not find it, and yet it cannot be made,
// because it exists. It returns nil until that has happened several times; futile is how often.
func (c *session) hidden(q *question, missing error, futile int) error {
	if futile < mostImmediate {
		return nil
	}
	return &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
		"the table %s: %w, and yet it cannot be made: it exists (does a trigger or a policy hide or change it?)",
		c.store.target.table, missing)}
}

// tryStep makes one attempt. If it returns both a step and an error, the server may have committed the step.
func (c *session) tryStep(ctx context.Context, q *question) (*step, error) {
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
	if v.isNewName && c.store.kindOf(err) == Exists {
		return nil, errNameExists
	}
	if err != nil {
		return t, err
	}
	c.wake(ctx, q, t.sleepers)
	if t.again {
		err := c.passOver(ctx, q)
		if err != nil { // the next waiter that looks does it
			c.closeConn()
		}
	}
	return t, nil
}

// turnedAway returns the step of a newcomer that is turned away, or nil if the newcomer may get the slot or a
// place. It locks nothing, because with a lock each of many newcomers would hold up all others for a round trip,
// and the last ones would get no answer in time. What turnedAway reads was true at some moment since the
// newcomer asked. A locked row would tell no more about a slot that others hold.
func (c *session) turnedAway(ctx context.Context, q *question) (*step, error) {
	s := c.store
	statements, shapes := s.viewText(q, queue.ShownPlaces)
	answers, err := c.ask(ctx, s.dialect.Begin+";"+strings.Join(statements, ";")+";ROLLBACK", shapes...)
	isBriefNow := s.switchToBrief(err)
	if isBriefNow {
		return nil, nil // the step reads less of each row
	}
	if err != nil {
		return nil, err
	}
	v := &view{limit: queue.ShownPlaces}
	err = v.read(s, q, answers)
	isComplete := err == nil && v.name != nil && v.name.name == q.name && !v.needsMore()
	if !isComplete {
		return nil, nil // the step finds out what is wrong, or reads more
	}
	hasExpiredOffers := s.revokeText(q, v) != ""
	if hasExpiredOffers {
		return nil, nil // the step revokes them, which may leave room
	}
	c.observe(&v.facts)
	t, err := s.decide(q, v)
	if err != nil || t.answer.Verdict != queue.Busy || t.answer.Quarantine > 0 {
		return nil, nil
	}
	return t, nil
}

// observe keeps what the server says of itself. If the number of the connection at the server has changed, a
// pooler or proxy shares its connections among clients: no waiter can be woken over them.
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

// isDirect reports whether the session has made a step over its connection, and the connection is not a pooler's.
func (c *session) isDirect() bool {
	return c.conn != nil && c.facts.conn != 0 && c.facts.conn == c.number
}

// look locks the name's row and reads the queue. It revokes offers that were not accepted in
// time: from then on they cannot be accepted.
func (c *session) look(ctx context.Context, q *question) (*view, error) {
	s := c.store
	v := &view{limit: queue.ShownPlaces}
	q.turn = rand.Int64()
	text := s.lockText(q)
	for {
		statements, shapes := s.viewText(q, v.limit)
		answers, err := c.ask(ctx, text+strings.Join(statements, ";"), shapes...)
		if err == nil {
			err = v.read(s, q, answers)
		}
		isBriefNow := s.switchToBrief(err)
		if isBriefNow { // the transaction has ended with its connection
			q.turn = rand.Int64()
			text = s.lockText(q)
			continue
		}
		if err != nil {
			return nil, err
		}
		isNewName := v.begin(q)
		if isNewName {
			return v, nil
		}
		switch {
		case v.name == nil, v.name.turn != q.turn: // another turn: somebody has just made the row, and it is not locked
			return nil, errNoName
		case q.name != "" && v.name.name != q.name:
			return nil, &lease.Refusal{Kind: q.refusalKind(), Err: fmt.Errorf(
				"the hash of the name %q is also that of %q, which is in use: choose another name",
				q.name, locks.Printable(v.name.name, 300))}
		}
		text = s.revokeText(q, v)
		if v.needsMore() {
			v.limit *= 4
		} else if text == "" {
			return v, nil
		}
	}
}

// switchToBrief makes the store read less of each row from now on, if err says that an answer was too long. It
// reports whether that is new, so that another attempt may get an answer.
func (s *Store) switchToBrief(err error) bool {
	return errors.Is(err, network.ErrTooLong) && s.isBrief.CompareAndSwap(false, true)
}

// revokeText returns the statements that remove the waiters whose offers have expired. They get their old
// places when they ask again.
func (s *Store) revokeText(q *question, v *view) string {
	text := ""
	for i := range v.holders {
		h := &v.holders[i]
		if h.State != queue.Offered || h.due > v.now {
			continue
		}
		verb := "DELETE FROM " + s.table
		if h.Evicted != "" { // the tombstone tells the waiter of its eviction
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
	c.host = s.host.Load()
	ctx, cancel := context.WithTimeout(ctx, s.target.connectTimeout)
	defer cancel()
	host := hosts[int(c.host)%len(hosts)]
	onConnect := func() { call(c.onConnect) }
	if s.target.isOnThisMachine(host) {
		onConnect = func() {}
	}
	conn, number, err := s.dialect.Connect(ctx, s.target, host, onConnect)
	if err != nil {
		s.useNextHost(c.host)
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
// whose commit hung, once: an attempt there takes all of its time. The distance of the host that failed counts
// until the next one has answered: a shorter attempt might be too short to connect to a host that is as far away.
func (s *Store) useNextHost(failed int64) {
	next, hosts := failed+1, int64(len(s.target.hosts))
	hung := s.hung.Load()
	if hung > 0 && (hung-1)%hosts == next%hosts {
		s.hung.CompareAndSwap(hung, 0)
		next++
	}
	s.host.CompareAndSwap(failed, next)
}
