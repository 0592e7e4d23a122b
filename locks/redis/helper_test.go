package redis_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

var background = context.Background()

// patience bounds every wait for something that must happen. It is long: it
// ends a broken test, it is no measure of speed.
const patience = 30 * time.Second

// longTTL is for leases that nothing renews.
const longTTL = time.Minute

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	redistest.Eventually(t, what, ok)
}

func open(t testing.TB, url string) *redis.Store {
	t.Helper()
	s, err := redis.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// change makes a request special.
type change func(*locks.Request)

func noWait(r *locks.Request)       { r.NoWait = true }
func limit(n int) change            { return func(r *locks.Request) { r.Claim.Max = n } }
func weight(n int) change           { return func(r *locks.Request) { r.Claim.Weight = n } }
func priority(n int) change         { return func(r *locks.Request) { r.Claim.Priority = n } }
func ttl(d time.Duration) change    { return func(r *locks.Request) { r.TTL = d } }
func within(rs ...locks.Ref) change { return func(r *locks.Request) { r.Within = rs } }

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
func take(t testing.TB, s *redis.Store, name string, changes ...change) locks.Leased {
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

// takeInTime waits for the quarantine of a server that has just been started.
func takeInTime(t testing.TB, s *redis.Store, name string, changes ...change) locks.Leased {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	ticket, err := s.Join(ctx, request(t, name, changes...))
	if err != nil {
		t.Fatalf("Join(%q): %v", name, err)
	}
	l, err := ticket.Wait(ctx)
	if err != nil {
		t.Fatalf("Wait(%q): %v", name, err)
	}
	t.Cleanup(func() { _ = l.Release(background) })
	return l.(locks.Leased)
}

// refused joins without waiting and must be told that the name is busy.
func refused(t testing.TB, s *redis.Store, name string, changes ...change) *locks.BusyError {
	t.Helper()
	_, err := s.Join(background, request(t, name, append(changes, noWait)...))
	var busy *locks.BusyError
	if !errors.As(err, &busy) {
		t.Fatalf("Join(%q) = %v, want a BusyError", name, err)
	}
	return busy
}

// denied joins and must be told at once, and for good, why it cannot be.
func denied(t testing.TB, s *redis.Store, name string, changes ...change) error {
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

// fails joins, for a second at most, and gives the error.
func fails(t testing.TB, s *redis.Store, name string, changes ...change) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	ticket, err := s.Join(ctx, request(t, name, changes...))
	if err == nil {
		t.Fatalf("Join(%q) succeeded, queued %v", name, ticket.Queued())
	}
	return err
}

func release(t testing.TB, l locks.Lease) {
	t.Helper()
	if err := l.Release(background); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func renew(t testing.TB, l locks.Leased) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	if _, err := l.Renew(ctx); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// renewUntil renews again and again, as the runner does, until it is answered.
func renewUntil(l locks.Leased, end time.Time) error {
	for {
		ctx, cancel := context.WithTimeout(background, 500*time.Millisecond)
		_, err := l.Renew(ctx)
		cancel()
		if err == nil || errors.Is(err, locks.ErrLost) || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// waiter is a queued request in a goroutine of its own.
type waiter struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	lease  locks.Leased
	err    error
}

// queue joins and must have to wait. The waiting goes on in the background.
func queue(t testing.TB, s *redis.Store, name string, changes ...change) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	ticket, err := s.Join(ctx, request(t, name, changes...))
	if err != nil {
		cancel()
		t.Fatalf("Join(%q): %v", name, err)
	}
	if !ticket.Queued() {
		cancel()
		t.Fatalf("Join(%q) was granted at once", name)
	}
	w := &waiter{t: t, cancel: cancel, done: make(chan struct{})}
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

func list(t testing.TB, s *redis.Store, name string) []locks.Entry {
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
func count(t testing.TB, s *redis.Store, name string) (holding, waiting int) {
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
func becomes(t testing.TB, s *redis.Store, name string, holding, waiting int) {
	t.Helper()
	eventually(t, "the entries are as they should be", func() bool {
		h, w := count(t, s, name)
		return h == holding && w == waiting
	})
}

// listening waits until n waiters have subscribed and the store knows it.
func listening(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	eventually(t, "the waiters listen", func() bool {
		ears := 0
		for _, key := range server.Do("KEYS", "*:e").([]any) {
			for _, record := range server.Do("HVALS", key).([]any) {
				if fields := strings.Fields(record.(string)); len(fields) > 10 && fields[7] != "0" && fields[10] == "-" {
					ears++
				}
			}
		}
		return ears >= n && len(server.Do("PUBSUB", "CHANNELS").([]any)) >= n
	})
}

// asking makes those that wait ones that take no grant that they have not asked
// for, until their next look.
func asking(server *redistest.Server) {
	for _, key := range server.Do("KEYS", "*:e").([]any) {
		for _, id := range server.Do("HKEYS", key).([]any) {
			fields := strings.SplitN(server.Do("HGET", key, id).(string), " ", 12)
			if ears, err := strconv.Atoi(fields[7]); len(fields) == 12 && err == nil && ears > 1 {
				fields[7] = "1"
				server.Do("HSET", key, id, strings.Join(fields, " "))
			}
		}
	}
}

// subscribed waits until the server has that many channels.
func subscribed(t testing.TB, server *redistest.Server, n int) {
	t.Helper()
	eventually(t, "the server has as many channels as it should", func() bool {
		return len(server.Do("PUBSUB", "CHANNELS").([]any)) == n
	})
}

// same fails unless two grants are one.
func same(t testing.TB, got, want locks.Grant) {
	t.Helper()
	if got.Ref != want.Ref || got.Fence != want.Fence || !slices.Equal(got.Slots, want.Slots) {
		t.Errorf("grant %+v, want %+v", got, want)
	}
}

// entries gives what the store shows of a name, or why not.
func entries(s *redis.Store, name string) (all []locks.Entry, err error) {
	for e, err := range s.Entries(background, name) {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}
