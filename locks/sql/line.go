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
)

// Bounds of one attempt to get one answer, connecting included.
const (
	shortestAttempt = 300 * time.Millisecond
	longestAttempt  = 2 * time.Second

	// firstAttempt is for who has no place yet: one of hundreds that come at once
	// would only make it worse by giving up and connecting anew.
	firstAttempt = 4 * time.Second
)

// attemptLimit is how long an attempt may take for an entry of that TTL: one
// that hangs must leave time for others.
func attemptLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, shortestAttempt), longestAttempt)
}

// line is at most one connection, which is opened when it is needed and never
// used again after an error. One goroutine at a time uses it; others wait.
type line struct {
	store *Store

	mu     sync.Mutex
	conn   Conn
	number int64 // of the connection at the server
	closed bool
	sent   bool // the last attempt has sent what it writes: it may have been done
}

var errClosed = errors.New("the store is closed")

// close ends the connection, or makes that it is closed after use.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.hangUp()
}

// idle closes the connection until the line is used again.
func (l *line) idle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
}

func (l *line) hangUp() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// step makes one step: look, decide, write, and wake who has to know. It ends
// when ctx does, or after the time of an attempt.
func (l *line) step(ctx context.Context, ttl time.Duration, q *question) (a answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := attemptLimit(ttl)
	if q.mode == join && q.epoch == "" {
		limit = max(limit, firstAttempt)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &refusal{err: locks.NewPanicError(v)}
		}
		if err != nil {
			l.hangUp()
		}
	}()
	fresh, doubtful := l.conn == nil, false
	for {
		at := l.store.host.Load()
		a, err = l.attempt(ctx, q)
		doubtful = doubtful || err != nil && l.sent
		switch {
		case err == nil && a.word != again:
			a.doubtful = doubtful
			return a, nil
		case err == nil:
		case errors.Is(err, errNoName):
			if q.name == "" { // nor has it entries
				return l.nothing(ctx, q)
			}
			err = l.makeName(ctx, q)
		case errors.Is(err, errNoTableRow):
			err = l.makeTableRow(ctx, q)
		case errors.Is(err, errNotLocked):
			l.hangUp()
			err = nil
		case l.store.verdict(err) == AtOnce:
			l.hangUp()
		case l.store.verdict(err) == NoTable && q.name == "":
			return l.nothing(ctx, q)
		case l.store.verdict(err) == NoTable:
			err = l.makeTable(ctx, q)
		case !fresh && !l.sent && !l.store.said(err): // the connection was closed while nobody used it
			l.hangUp()
			fresh, err = true, nil
		}
		if err != nil && l.store.verdict(err) != AtOnce {
			l.store.another(at)
			return a, l.store.judge(err)
		}
		if ctx.Err() != nil {
			return a, noAnswer{context.Cause(ctx)}
		}
	}
}

// nothing is the answer about an entry of a name that nobody uses.
func (l *line) nothing(ctx context.Context, q *question) (answer, error) {
	l.hangUp()
	if q.mode == release || q.mode == quit {
		return answer{word: released}, nil
	}
	return answer{word: lost}, nil
}

// noAnswer is an attempt that took too long.
type noAnswer struct{ cause error }

func (noAnswer) Error() string   { return "no answer in time" }
func (e noAnswer) Unwrap() error { return e.cause }

// errNoName says that the name has no row yet.
var errNoName = errors.New("the name has no row")

// errNoTableRow says that somebody has deleted the table's own row, most likely
// with all others.
var errNoTableRow = errors.New("the table has no row of its own")

// errNotLocked says that it had none when it was to be locked, but has now.
var errNotLocked = errors.New("the name's row is not locked")

func (l *line) attempt(ctx context.Context, q *question) (answer, error) {
	s := l.store
	l.sent = false
	if err := l.open(ctx); err != nil {
		return answer{}, err
	}
	v, err := l.look(ctx, q)
	if err != nil {
		return answer{}, err
	}
	if !v.hasTable {
		return answer{}, errNoTableRow
	}
	q.listens = false
	if s.target.waiters > 0 {
		if q.listens = l.conn.Owns(v.conn); !q.listens {
			s.deaf.Store(true)
		}
	}
	switch {
	case v.name == nil:
		return answer{}, errNoName
	case v.name.turn != q.turn:
		return answer{}, errNotLocked
	case q.name != "" && v.name.name != q.name:
		return answer{}, &refusal{err: fmt.Errorf("the hash of the name %q is also that of %q, which is in use: choose another name", q.name, locks.Printable(v.name.name, 300))}
	}
	t, a, err := s.decide(q, v)
	if err != nil {
		return answer{}, err
	}
	l.sent, q.sent = true, true
	if _, err := l.conn.Run(ctx, t.finish()); err != nil {
		return answer{}, err
	}
	l.number = v.conn
	l.wake(ctx, q, t.sleepers)
	return a, nil
}

// look locks the name's row and reads what there is to know of the name.
func (l *line) look(ctx context.Context, q *question) (*view, error) {
	s := l.store
	answers, err := l.conn.Run(ctx, s.text(q))
	if err != nil {
		return nil, err
	}
	v, err := s.read(q, answers)
	if err != nil {
		return nil, &refusal{err: err}
	}
	for limit := usualRows(q); v.short(); {
		limit *= 4
		if answers, err = l.conn.Run(ctx, s.rows(q, limit)); err != nil {
			return nil, err
		}
		if len(answers) != 1 {
			return nil, &refusal{err: fmt.Errorf("%d answers to a question", len(answers))}
		}
		if err := v.readRows(q, answers[0], limit); err != nil {
			return nil, &refusal{err: err}
		}
	}
	if v.name == nil {
		return v, nil
	}
	text, parts := s.rest(q, v)
	if text == "" {
		return v, nil
	}
	if answers, err = l.conn.Run(ctx, text); err != nil {
		return nil, err
	}
	if err := v.readRest(answers, parts); err != nil {
		return nil, &refusal{err: err}
	}
	return v, nil
}

// wake wakes others, and stays until they have come or their connections have
// gone, but not for long. All of it is only to save time: without it they, and
// those behind them, look by themselves.
func (l *line) wake(ctx context.Context, q *question, sleepers []Sleeper) {
	if len(sleepers) == 0 || len(q.dead) >= frontSize {
		return
	}
	err := l.conn.Wake(ctx, sleepers)
	for wait := firstWatch; err == nil && wait <= lastWatch; wait *= 2 {
		pause(ctx, wait)
		var gone []Sleeper
		if sleepers, err = l.asleep(ctx, sleepers); err != nil || len(sleepers) == 0 {
			break
		}
		if gone, err = l.conn.Gone(ctx, sleepers); err != nil || len(gone) == 0 {
			continue
		}
		next := &question{mode: nudge, key: q.key, name: q.name, dead: maps.Clone(q.dead)}
		if next.dead == nil {
			next.dead = map[string]bool{}
		}
		for _, d := range gone {
			next.dead[d.ID] = true
		}
		_, err = l.attempt(ctx, next)
		break
	}
	if err != nil {
		l.hangUp()
	}
}

// The pauses in which wake watches: 2, 4 ... 32 ms. A connection whose client
// has died may take a few of them to end.
const (
	firstWatch = 2 * time.Millisecond
	lastWatch  = 32 * time.Millisecond
)

// asleep gives those that have not looked since they were called.
func (l *line) asleep(ctx context.Context, sleepers []Sleeper) ([]Sleeper, error) {
	ids := make([]string, len(sleepers))
	for i, w := range sleepers {
		ids[i] = "'" + w.ID + "'"
	}
	rows, err := l.conn.Run(ctx, fmt.Sprintf("SELECT entry_id FROM %s WHERE lock_key='%s' AND entry_id IN (%s) AND state='W' AND woken=1",
		l.store.table, sleepers[0].Key, strings.Join(ids, ",")))
	if err != nil || len(rows) != 1 {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(sleepers), func(w Sleeper) bool {
		return !slices.ContainsFunc(rows[0], func(r []string) bool { return r[0] == w.ID })
	}), nil
}

// open connects to one of the hosts, beginning with the one that worked last.
func (l *line) open(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	if l.closed {
		return &refusal{err: errClosed}
	}
	s := l.store
	hosts := s.target.hosts
	at := s.host.Load()
	conn, err := s.dialect.Connect(ctx, s.target, hosts[int(at)%len(hosts)])
	if err != nil {
		s.another(at)
		return err
	}
	l.conn, l.number = conn, 0
	return nil
}

// another makes the next attempt go to the next host.
func (s *Store) another(than int64) {
	if len(s.target.hosts) > 1 {
		s.host.CompareAndSwap(than, than+1)
	}
}
