package sql_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/sql"
	"golock/locks/sql/mysql"
	"golock/locks/sql/postgres"
	"golock/locks/sql/sqltest"
)

var background = context.Background()

// patience bounds every wait for something that must happen. It is long: it
// ends a broken test, it is no measure of speed.
const patience = 30 * time.Second

// longTTL is for leases that nothing renews.
const longTTL = time.Minute

// family is one of the two kinds of servers, with the store that uses it.
type family struct {
	name   string // the URL's scheme too
	open   func(url string) (*sql.Store, error)
	shared func(testing.TB) *sqltest.Server // by all tests
	start  func(t testing.TB, options ...string) *sqltest.Server
}

func mariadb() family {
	return family{"mariadb", mysql.Open, sqltest.Maria, sqltest.StartMaria}
}

func postgresql() family {
	return family{"postgres", postgres.Open, sqltest.Postgres, sqltest.StartPostgres}
}

func families() []family { return []family{mariadb(), postgresql()} }

// both runs a test for each family.
func both(t *testing.T, test func(t *testing.T, f family)) {
	t.Parallel()
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// base is a database on a server.
type base struct {
	family
	server *sqltest.Server
	name   string
}

// fresh makes a database on the shared server.
func (f family) fresh(t testing.TB) *base {
	t.Helper()
	server := f.shared(t)
	return &base{f, server, server.NewDatabase(t)}
}

// alone makes one on a server of its own.
func (f family) alone(t testing.TB, options ...string) *base {
	t.Helper()
	server := f.start(t, options...)
	return &base{f, server, server.NewDatabase(t)}
}

// store opens the table of the database; without options there is no quarantine.
func (b *base) store(t testing.TB, options ...string) *sql.Store {
	t.Helper()
	return b.openURL(t, b.server.URL(b.name, append([]string{"quarantine=0"}, options...)...))
}

func (f family) openURL(t testing.TB, url string) *sql.Store {
	t.Helper()
	s, err := f.open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// exec runs statements as the administrator.
func (b *base) exec(t testing.TB, text string) [][]string {
	t.Helper()
	return b.server.Exec(t, b.name, text)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	sqltest.Eventually(t, what, ok)
}

// change makes a request special.
type change func(*locks.Request)

func noWait(r *locks.Request)    { r.NoWait = true }
func limit(n int) change         { return func(r *locks.Request) { r.Claim.Max = n } }
func weight(n int) change        { return func(r *locks.Request) { r.Claim.Weight = n } }
func priority(n int) change      { return func(r *locks.Request) { r.Claim.Priority = n } }
func ttl(d time.Duration) change { return func(r *locks.Request) { r.TTL = d } }

func request(t testing.TB, name string, changes ...change) locks.Request {
	t.Helper()
	ref, err := locks.NewRef(name)
	if err != nil {
		t.Fatal(err)
	}
	r := locks.Request{Ref: ref, Name: name, Claim: locks.Claim{Weight: 1, Max: 1}, TTL: longTTL, Command: []string{"job"}}
	for _, c := range changes {
		c(&r)
	}
	return r
}

// take joins and must be granted at once.
func take(t testing.TB, s *sql.Store, name string, changes ...change) locks.Leased {
	t.Helper()
	ticket, err := s.Join(background, request(t, name, append(changes, noWait)...))
	if err != nil {
		t.Fatalf("Join(%q): %v", name, err)
	}
	l, err := ticket.Wait(background)
	if err != nil {
		t.Fatalf("Wait(%q): %v", name, err)
	}
	t.Cleanup(func() { _ = l.Release(background) })
	return l.(locks.Leased)
}

// refused joins without waiting and must be told that the name is busy.
func refused(t testing.TB, s *sql.Store, name string, changes ...change) *locks.BusyError {
	t.Helper()
	_, err := s.Join(background, request(t, name, append(changes, noWait)...))
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("Join(%q) = %v, want a BusyError", name, err)
	}
	return busy
}

// denied joins and must be told at once, and for good, why it cannot be.
func denied(t testing.TB, s *sql.Store, name string, changes ...change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	_, err := s.Join(ctx, request(t, name, changes...))
	var outage *locks.OutageError
	if err == nil || errors.As(err, &outage) {
		t.Fatalf("Join(%q) = %v, want an error that is final", name, err)
	}
	return err
}

func release(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := giveBack(l); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// giveBack releases, again and again: the two seconds of one release may pass on
// a machine that is busy with other tests.
func giveBack(l locks.Lease) error {
	var outage *locks.OutageError
	for end := time.Now().Add(patience); ; {
		err := l.Release(background)
		if !errors.As(err, &outage) || time.Now().After(end) {
			return err
		}
	}
}

// tryRenew is one attempt of a renewal.
func tryRenew(l locks.Leased) error {
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	_, err := l.Renew(ctx)
	return err
}

func renew(t testing.TB, l locks.Leased) {
	t.Helper()
	if err := tryRenew(l); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// waiter is a queued request in a goroutine of its own.
type waiter struct {
	t      testing.TB
	ref    locks.Ref
	cancel context.CancelFunc
	done   chan struct{}
	lease  locks.Leased
	err    error
}

// queue joins and must have to wait. The waiting goes on in the background.
func queue(t testing.TB, s *sql.Store, name string, changes ...change) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	r := request(t, name, changes...)
	ticket, err := s.Join(ctx, r)
	if err != nil {
		cancel()
		t.Fatalf("Join(%q): %v", name, err)
	}
	if !ticket.Queued() {
		cancel()
		t.Fatalf("Join(%q) was granted at once", name)
	}
	w := &waiter{t: t, ref: r.Ref, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		var l locks.Lease
		if l, w.err = ticket.Wait(ctx); w.err == nil {
			w.lease = l.(locks.Leased)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-w.done
		if w.lease != nil {
			_ = w.lease.Release(background)
		}
	})
	return w
}

// ended waits until Wait has returned.
func (w *waiter) ended() {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		w.t.Fatal("Wait does not return")
	}
}

func (w *waiter) granted() locks.Leased {
	w.t.Helper()
	w.ended()
	if w.err != nil {
		w.t.Fatalf("Wait: %v", w.err)
	}
	return w.lease
}

// waits fails if w does not wait any more by now.
func (w *waiter) waits() {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("Wait returned %v, %v out of turn", w.lease, w.err)
	default:
	}
}

func list(t testing.TB, s *sql.Store, name string) []locks.Entry {
	t.Helper()
	var all []locks.Entry
	for e, err := range s.Entries(background, name) {
		if err != nil {
			t.Fatalf("Entries: %v", err)
		}
		all = append(all, e)
	}
	return all
}

// count gives the number of holders and waiters.
func count(t testing.TB, s *sql.Store, name string) (holding, waiting int) {
	t.Helper()
	for _, e := range list(t, s, name) {
		if e.State == locks.Holding {
			holding++
		} else {
			waiting++
		}
	}
	return holding, waiting
}

// becomes waits until a name has that many holders and waiters.
func becomes(t testing.TB, s *sql.Store, name string, holding, waiting int) {
	t.Helper()
	eventually(t, "the entries are as they should be", func() bool {
		h, w := count(t, s, name)
		return h == holding && w == waiting
	})
}

// listening waits until n waiters sleep at the server.
func (b *base) listening(t testing.TB, n int) {
	t.Helper()
	eventually(t, "the waiters listen", func() bool { return len(b.sleepers(t)) >= n })
}

// sleepers are the connections of waiters that can be woken.
func (b *base) sleepers(t testing.TB) []sqltest.Connection {
	t.Helper()
	return slices.DeleteFunc(b.server.Connections(t, b.name), func(c sqltest.Connection) bool {
		if b.family.name == "postgres" {
			return !strings.Contains(c.Statement, "LISTEN golock_") || !strings.HasSuffix(c.Statement, "COMMIT")
		}
		return !strings.HasPrefix(c.Statement, "/* golock:wait:")
	})
}

// same fails unless two grants are one.
func same(t testing.TB, got, want locks.Grant) {
	t.Helper()
	if got.Ref != want.Ref || got.Fence != want.Fence || !slices.Equal(got.Slots, want.Slots) {
		t.Errorf("grant %+v, want %+v", got, want)
	}
}
