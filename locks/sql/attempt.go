package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

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
