package sql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
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

// ask sends a text, over a connection that it opens if there is none. An error costs the
// connection.
func (c *session) ask(ctx context.Context, text string) (answers []Rows, err error) {
	if err = c.open(ctx); err == nil {
		answers, err = c.conn.Run(ctx, text)
	}
	if err != nil {
		c.hangUp()
	}
	return answers, err
}

// insert is ask for a row that somebody else may just have made.
func (c *session) insert(ctx context.Context, text string) error {
	_, err := c.ask(ctx, text)
	if err != nil && c.store.verdict(err) == Exists {
		return nil
	}
	return err
}

// guard runs f with the session locked. After an error the connection is closed.
func (c *session) guard(f func() error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			err = &lease.Refusal{Err: locks.NewPanicError(v)}
		}
		if err != nil {
			c.hangUp()
		}
	}()
	return f()
}

// step makes one step: look, decide, write, and wake who has to know. It ends
// when ctx does, or after the time of an attempt.
func (c *session) step(ctx context.Context, ttl time.Duration, q *question) (a answer, err error) {
	limit := lease.AttemptLimit(ttl)
	if q.isNew() {
		limit = max(limit, firstAttempt)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = c.guard(func() error {
		a, err = c.stepLocked(ctx, q)
		return err
	})
	return a, err
}

func (c *session) stepLocked(ctx context.Context, q *question) (a answer, err error) {
	fresh, doubtful := c.conn == nil, false
	for {
		at := c.store.host.Load()
		a, err = c.attempt(ctx, q)
		doubtful = doubtful || err != nil && c.sent
		switch {
		case err == nil:
			a.Doubtful = doubtful
			return a, nil
		case errors.Is(err, errNoName):
			if q.name == "" { // nor has it entries
				return c.answerUnused(q), nil
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
			return c.answerUnused(q), nil
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
func (c *session) answerUnused(q *question) (a answer) {
	c.hangUp()
	a.Verdict = lease.Lost
	if q.Step == lease.Release || q.Step == lease.Leave {
		a.Verdict = lease.Released
	}
	return a
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
	v, err := c.look(ctx, q)
	if err != nil {
		return answer{}, err
	}
	q.conn = false
	s.most.Store(v.most)
	if s.target.waiters != 0 {
		if q.conn = c.conn.Owns(v.conn); !q.conn {
			s.noNotify.Store(true)
		}
	}
	q.mine.info = withLogin(q.mine.info, v.login())
	t, a, err := s.decide(q, v)
	if err != nil {
		return answer{}, err
	}
	c.sent, q.sent = true, true
	if _, err := c.ask(ctx, t.finish()); err != nil {
		return answer{}, err
	}
	c.number = v.conn
	c.wake(ctx, q, t.sleepers)
	if t.again && c.passOver(ctx, q, nil) != nil { // the next to look does it
		c.hangUp()
	}
	return a, nil
}

// look locks the name's row and reads what there is to know of the name. Offers that
// nobody has taken in time are revoked: from then on they cannot be accepted.
func (c *session) look(ctx context.Context, q *question) (*view, error) {
	s := c.store
	answers, err := c.ask(ctx, s.text(q))
	if err != nil {
		return nil, err
	}
	v, err := s.read(q, answers)
	switch {
	case err != nil:
		return nil, &lease.Refusal{Err: err}
	case !v.hasTable:
		return nil, errNoTableRow
	case v.name == nil:
		return nil, errNoName
	case v.name.turn != q.turn:
		return nil, errNotLocked
	case q.name != "" && v.name.name != q.name:
		return nil, refusal("the hash of the name %q is also that of %q, which is in use: choose another name", q.name, locks.Printable(v.name.name, 300))
	}
	for limit := frontSize; ; {
		revoke := s.revoke(q, v)
		if v.short() {
			limit *= 4
		} else if revoke == "" {
			return v, nil
		}
		if answers, err = c.ask(ctx, revoke+s.entriesText(q, limit)); err != nil {
			return nil, err
		}
		if err := v.readEntries(q, answers, limit); err != nil {
			return nil, &lease.Refusal{Err: err}
		}
	}
}

// revoke is the statements that take out those whose offers are over. Like all who were
// taken for dead they get their old place when they ask again.
func (s *Store) revoke(q *question, v *view) string {
	text := ""
	for i := range v.holders {
		h := &v.holders[i]
		if h.State != queue.Offered || h.due > v.now && !slices.Contains(q.missed, h.ID) {
			continue
		}
		verb := "DELETE FROM " + s.table
		if h.Evicted != "" { // it has to learn that
			verb = fmt.Sprintf("UPDATE %s SET state='G',ends=%d,slots=''", s.table, v.now)
		}
		text += fmt.Sprintf("%s WHERE lock_key='%s' AND entry_id='%s' AND state='O';", verb, q.key, h.ID)
	}
	return text
}

// wake wakes others, and stays until they have come, but not for long. An offer to one
// whose connection has gone all that time goes to the next.
func (c *session) wake(ctx context.Context, q *question, sleepers []Sleeper) {
	told := c.store.dialect.Notify("") != "" // by the step
	var gone []Sleeper
	for pause := firstWatch; pause <= lastWatch && len(sleepers) > 0 && len(q.missed) < frontSize; pause *= 2 {
		err := c.open(ctx)
		if err == nil && !told && (pause == firstWatch || pause >= nextWake) {
			gone, err = c.conn.Wake(ctx, sleepers)
		}
		told = false
		if err == nil {
			lease.Pause(ctx, pause)
			sleepers, err = c.asleep(ctx, q.key, sleepers)
		}
		if err == nil && pause == lastWatch {
			gone = slices.DeleteFunc(gone, func(w Sleeper) bool { return !slices.Contains(sleepers, w) })
			if len(gone) > 0 {
				err = c.passOver(ctx, q, gone)
			}
		}
		if err != nil {
			c.hangUp()
			if c.store.verdict(err) != AtOnce { // else somebody has woken this one, too late
				return
			}
		}
	}
}

// passOver gives offers that were missed to others, and hands out what is still free.
func (c *session) passOver(ctx context.Context, q *question, missed []Sleeper) error {
	next := &question{Question: queue.Question{Step: queue.Look}, key: q.key, name: q.name, missed: slices.Clone(q.missed)}
	for _, m := range missed {
		next.missed = append(next.missed, m.ID)
	}
	_, err := c.attempt(ctx, next)
	return err
}

// The pauses in which wake watches: 2, 4 ... 256 ms. A connection whose client
// has died may take a few of them to end, on a busy server all.
const (
	firstWatch = 2 * time.Millisecond
	lastWatch  = 256 * time.Millisecond

	nextWake = 32 * time.Millisecond // sooner it would disturb who has just been woken
)

// asleep gives those that have not looked since: they did not take their offers, or do not
// know that they were evicted.
func (c *session) asleep(ctx context.Context, key string, sleepers []Sleeper) ([]Sleeper, error) {
	ids := make([]string, len(sleepers))
	for i, w := range sleepers {
		ids[i] = "'" + w.ID + "'"
	}
	rows, err := c.ask(ctx, fmt.Sprintf("SELECT entry_id FROM %s WHERE lock_key='%s' AND entry_id IN (%s) AND (state='O' OR state='G' AND conn<>0)", c.store.table, key, strings.Join(ids, ",")))
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
