package sql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// firstAttempt is the limit for who has no place yet: one of hundreds that come at
// once would only make it worse by giving up and connecting anew.
const firstAttempt = 4 * time.Second

// session is at most one connection, which is opened when it is needed and never
// used again after an error. One goroutine at a time uses it; others wait.
type session struct {
	store *Store

	mu     sync.Mutex
	conn   Conn
	number int64 // of the connection at the server
	sent   bool  // the last attempt has sent what it writes: it may have been done
}

// idle closes the connection until the session is used again.
func (c *session) idle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangUp()
}

func (c *session) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// step makes one step: look, decide, write, and wake who has to know. It ends
// when ctx does, or after the time of an attempt.
func (c *session) step(ctx context.Context, ttl time.Duration, q *question) (a answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := lease.AttemptLimit(ttl)
	if q.mode == lease.Join && q.epoch == "" {
		limit = max(limit, firstAttempt)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &lease.Refusal{Err: locks.NewPanicError(v)}
		}
		if err != nil {
			c.hangUp()
		}
	}()
	fresh, doubtful := c.conn == nil, false
	for {
		at := c.store.host.Load()
		a, err = c.attempt(ctx, q)
		doubtful = doubtful || err != nil && c.sent
		switch {
		case err == nil && a.Verdict != again:
			a.Doubtful = doubtful
			return a, nil
		case err == nil:
		case errors.Is(err, errNoName):
			if q.name == "" { // nor has it entries
				return c.answerUnused(ctx, q)
			}
			err = c.makeName(ctx, q)
		case errors.Is(err, errNoTableRow):
			err = c.makeTableRow(ctx, q)
		case errors.Is(err, errNotLocked):
			c.hangUp()
			err = nil
		case c.store.verdict(err) == AtOnce:
			c.hangUp()
		case c.store.verdict(err) == NoTable && q.name == "":
			return c.answerUnused(ctx, q)
		case c.store.verdict(err) == NoTable:
			err = c.makeTable(ctx, q)
		case !fresh && !c.sent && !c.store.answered(err): // the connection was closed while nobody used it
			c.hangUp()
			fresh, err = true, nil
		}
		if err != nil && c.store.verdict(err) != AtOnce {
			c.store.useNextHost(at)
			return a, c.store.judge(err)
		}
		if ctx.Err() != nil {
			return a, lease.NoAnswer{Cause: context.Cause(ctx)}
		}
	}
}

// answerUnused is the answer about an entry of a name that nobody uses.
func (c *session) answerUnused(ctx context.Context, q *question) (answer, error) {
	c.hangUp()
	if q.mode == lease.Release || q.mode == lease.Leave {
		return released(false), nil
	}
	return verdict(lease.Lost), nil
}

// errNoName says that the name has no row yet.
var errNoName = errors.New("the name has no row")

// errNoTableRow says that somebody has deleted the table's own row, most likely
// with all others.
var errNoTableRow = errors.New("the table has no row of its own")

// errNotLocked says that it had none when it was to be locked, but has now.
var errNotLocked = errors.New("the name's row is not locked")

func (c *session) attempt(ctx context.Context, q *question) (answer, error) {
	s := c.store
	c.sent = false
	if err := c.open(ctx); err != nil {
		return answer{}, err
	}
	v, err := c.look(ctx, q)
	if err != nil {
		return answer{}, err
	}
	if !v.hasTable {
		return answer{}, errNoTableRow
	}
	q.listens = false
	if s.target.waiters > 0 {
		if q.listens = c.conn.Owns(v.conn); !q.listens {
			s.noNotify.Store(true)
		}
	}
	switch {
	case v.name == nil:
		return answer{}, errNoName
	case v.name.turn != q.turn:
		return answer{}, errNotLocked
	case q.name != "" && v.name.name != q.name:
		return answer{}, refusal("the hash of the name %q is also that of %q, which is in use: choose another name", q.name, locks.Printable(v.name.name, 300))
	}
	t, a, err := s.decide(q, v)
	if err != nil {
		return answer{}, err
	}
	c.sent, q.sent = true, true
	if _, err := c.conn.Run(ctx, t.finish()); err != nil {
		return answer{}, err
	}
	c.number = v.conn
	c.wake(ctx, q, t.sleepers)
	return a, nil
}

// look locks the name's row and reads what there is to know of the name.
func (c *session) look(ctx context.Context, q *question) (*view, error) {
	s := c.store
	answers, err := c.conn.Run(ctx, s.text(q))
	if err != nil {
		return nil, err
	}
	v, err := s.read(q, answers)
	if err != nil {
		return nil, &lease.Refusal{Err: err}
	}
	for limit := usualRows(q); v.short(); {
		limit *= 4
		if answers, err = c.conn.Run(ctx, s.rows(q, limit)); err != nil {
			return nil, err
		}
		if len(answers) != 1 {
			return nil, refusal("%d answers to a question", len(answers))
		}
		if err := v.readRows(q, answers[0], limit); err != nil {
			return nil, &lease.Refusal{Err: err}
		}
	}
	if v.name == nil {
		return v, nil
	}
	text, parts := s.rest(q, v)
	if text == "" {
		return v, nil
	}
	if answers, err = c.conn.Run(ctx, text); err != nil {
		return nil, err
	}
	if err := v.readRest(answers, parts); err != nil {
		return nil, &lease.Refusal{Err: err}
	}
	return v, nil
}

// wake wakes others, and stays until they have come or their connections have
// gone, but not for long. All of it is only to save time: without it they, and
// those behind them, look by themselves.
func (c *session) wake(ctx context.Context, q *question, sleepers []Sleeper) {
	if len(sleepers) == 0 || len(q.dead) >= frontSize {
		return
	}
	err := c.conn.Wake(ctx, sleepers)
	for wait := firstWatch; err == nil && wait <= lastWatch; wait *= 2 {
		lease.Pause(ctx, wait)
		var gone []Sleeper
		if sleepers, err = c.asleep(ctx, sleepers); err != nil || len(sleepers) == 0 {
			break
		}
		if gone, err = c.conn.Gone(ctx, sleepers); err != nil || len(gone) == 0 {
			continue
		}
		next := &question{mode: checkDead, key: q.key, name: q.name, dead: maps.Clone(q.dead)}
		if next.dead == nil {
			next.dead = map[string]bool{}
		}
		for _, d := range gone {
			next.dead[d.ID] = true
		}
		_, err = c.attempt(ctx, next)
		break
	}
	if err != nil {
		c.hangUp()
	}
}

// The pauses in which wake watches: 2, 4 ... 256 ms. A connection whose client
// has died may take a few of them to end, on a busy server all.
const (
	firstWatch = 2 * time.Millisecond
	lastWatch  = 256 * time.Millisecond
)

// asleep gives those that have not looked since they were called.
func (c *session) asleep(ctx context.Context, sleepers []Sleeper) ([]Sleeper, error) {
	ids := make([]string, len(sleepers))
	for i, w := range sleepers {
		ids[i] = "'" + w.ID + "'"
	}
	rows, err := c.conn.Run(ctx, fmt.Sprintf("SELECT entry_id FROM %s WHERE lock_key='%s' AND entry_id IN (%s) AND state='W' AND woken=1",
		c.store.table, sleepers[0].Key, strings.Join(ids, ",")))
	if err != nil || len(rows) != 1 {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(sleepers), func(w Sleeper) bool {
		return !slices.ContainsFunc(rows[0], func(r []string) bool { return r[0] == w.ID })
	}), nil
}

// open connects to one of the hosts, beginning with the one that worked last.
func (c *session) open(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	s := c.store
	hosts := s.target.hosts
	at := s.host.Load()
	if limit := s.target.connectTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	conn, err := s.dialect.Connect(ctx, s.target, hosts[int(at)%len(hosts)])
	if err != nil {
		s.useNextHost(at)
		return err
	}
	c.conn, c.number = conn, 0
	return nil
}

// useNextHost makes the next attempt go to the host after the one that failed.
func (s *Store) useNextHost(failed int64) {
	if len(s.target.hosts) > 1 {
		s.host.CompareAndSwap(failed, failed+1)
	}
}

// sleep waits until the entry is woken, for d at most. Without a connection over
// which it is woken it keeps none for longer than keep.
func (c *session) sleep(ctx context.Context, ref locks.Ref, k known, d, keep time.Duration) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case k.mine.wakeConn == 0:
		if d > keep {
			c.hangUp()
		}
		lease.Pause(ctx, d)
		return nil
	case c.conn == nil || k.mine.wakeConn != c.number:
		lease.Pause(ctx, min(d, lease.RetryPause))
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &lease.Refusal{Err: locks.NewPanicError(v)}
		}
		if err != nil {
			c.hangUp()
		}
	}()
	// A connection that has silently died never answers.
	bound, cancel := context.WithTimeout(ctx, d+lease.AttemptLimit(k.ttl))
	defer cancel()
	_, err = c.conn.Wait(bound, Sleeper{Table: c.store.table, Key: ref.Key.String(), ID: k.mine.id, Conn: k.mine.wakeConn}, d)
	return err
}
