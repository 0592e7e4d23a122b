package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// script is an entry whose store gives one error after the other, the last one for ever. nil is a
// grant.
type script struct {
	began time.Time
	errs  []error
	asked []time.Duration // when it was asked, since it began
}

func (s *script) Ask(_ context.Context, step queue.Step) (Answer, locks.Instant, error) {
	if step != queue.Join {
		return Answer{Outcome: queue.Outcome{Verdict: queue.Released, Existed: true}}, 0, nil
	}
	s.asked = append(s.asked, time.Since(s.began))
	err := s.errs[min(len(s.asked), len(s.errs))-1]
	return Answer{Outcome: queue.Outcome{Verdict: queue.Granted}}, 0, err
}

func (*script) Sleep(context.Context, queue.Nap, func()) (Answer, locks.Instant, error) {
	return Answer{}, 0, nil
}
func (*script) Events() <-chan struct{} { return nil }
func (*script) Close()                  {}

// join joins a store that says so, with a time for all of it; 0: none.
func join(s *script, r locks.Request, limit time.Duration) error {
	engine := NewEngine("store", func(locks.Request) *script { return s }, func(locks.Ref, string) *script { return s })
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	s.began = time.Now()
	_, err := engine.Join(ctx, r)
	synctest.Wait()
	return err
}

var (
	errAway    = errors.New("connection refused")
	errNoRoom  = &Refusal{Err: errors.New("too many clients"), Kind: Passing}
	errStandby = &Refusal{Err: errors.New("read-only"), Kind: Standby}
	errForGood = &Refusal{Err: errors.New("wrong password")}
	errDisk    = &Refusal{Err: errors.New("no space"), Kind: ForNewcomers}
)

// How long a request is repeated depends on whether the store has answered.
func TestPatience(t *testing.T) {
	const s = time.Second
	noWait := locks.Request{Reach: 2 * s, Refusals: 10 * s, JoinLimit: 30 * s}
	waits := locks.Request{Reach: 10 * s}
	for _, c := range []struct {
		what     string
		errs     []error
		request  locks.Request
		limit    time.Duration
		from, to time.Duration // when it ends
		answered bool          // as the error says
		granted  bool
	}{
		{"nobody answers -n", []error{errAway}, noWait, 0, 2 * s, 2 * s, false, false},
		{"nobody answers", []error{errAway}, waits, 60 * s, 10 * s, 10 * s, false, false},
		{"no connection is left for -n", []error{errNoRoom}, noWait, 0, 10 * s, 10 * s, true, false},
		{"no connection is left", []error{errNoRoom}, waits, 60 * s, 60 * s, 60 * s, true, false},
		{"no connection is left for a short --wait", []error{errNoRoom}, waits, 3 * s, 3 * s, 3 * s, true, false},
		{"it refuses, then it is away", []error{errNoRoom, errAway}, noWait, 0, 10 * s, 10 * s, false, false},
		{"it is away, then it refuses", []error{errAway, errNoRoom}, noWait, 0, 10 * s, 12 * s, true, false},
		{"connections get free", []error{errNoRoom, errNoRoom, errNoRoom, errNoRoom, nil}, noWait, 0, 0, 4 * s, false, true},
		{"only a standby answers", []error{errStandby}, noWait, 0, 2 * s, 2 * s, true, false},
		{"a standby becomes the primary", []error{errStandby, nil}, noWait, 0, 0, s, false, true},
		{"it refuses for good", []error{errNoRoom, errForGood}, noWait, 0, 0, s, false, false},
		{"its disk is full", []error{errDisk}, waits, 60 * s, 0, 0, true, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				entry := &script{errs: c.errs}
				err := join(entry, c.request, c.limit)
				took := time.Since(began)
				outage, _ := errors.AsType[*locks.OutageError](err)
				if took < c.from || took > c.to+100*time.Millisecond {
					t.Errorf("it took %v, want %v to %v: %v", took, c.from, c.to, err)
				}
				if (err == nil) != c.granted || (outage != nil && outage.Answered) != c.answered {
					t.Errorf("error %v, want one: %v; answered: %v", err, !c.granted, c.answered)
				}
			})
		})
	}
}

// Clients that were refused at the same moment do not come back at the same moment.
func TestPausesSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, attempts = 200, 8
		var all [attempts][]time.Duration
		for range clients {
			entry := &script{errs: []error{errNoRoom, errNoRoom, errNoRoom, errNoRoom, errNoRoom, errNoRoom, errNoRoom, nil}}
			if err := join(entry, locks.Request{}, 0); err != nil {
				t.Fatal(err)
			}
			for i, at := range entry.asked {
				all[i] = append(all[i], at)
			}
		}
		for i := 1; i < attempts; i++ {
			tenths := map[time.Duration]int{} // of the time in which they come
			for _, at := range all[i] {
				tenths[at*10/(time.Duration(i)*longestPause)]++
			}
			if i > 4 && len(tenths) < 3 {
				t.Errorf("attempt %d comes in %d different tenths only", i+1, len(tenths))
			}
		}
		first := map[time.Duration]int{}
		for _, at := range all[1] {
			first[at/(RetryPause/10)]++
		}
		if len(first) < 9 {
			t.Errorf("the second attempts come in %d of 10 parts of the first pause", len(first))
		}
	})
}

// A server that only takes connections has as long for its first answer as an attempt lasts; one that
// has answered is there, though its next answer takes long.
func TestSlowAnswer(t *testing.T) {
	for _, c := range []struct {
		what     string
		note     func(*patience)
		from, to time.Duration // when the attempts end, after the note
	}{
		{"it takes a connection", (*patience).connected, NewcomerAttempt - reachPart, NewcomerAttempt},
		{"it answers", (*patience).answered, time.Minute, time.Minute},
		{"it answers, and takes another connection", func(p *patience) { p.answered(); p.connected() }, time.Minute, time.Minute},
		{"it takes a connection twice", func(p *patience) {
			p.connected()
			time.Sleep(time.Second)
			p.connected()
		}, NewcomerAttempt - reachPart, NewcomerAttempt},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, cancel := context.WithTimeout(context.Background(), time.Second+time.Minute)
				defer cancel()
				limit, ctx, stop := newPatience(all, &locks.Request{Reach: 2 * time.Second})
				defer stop()
				time.Sleep(time.Second)
				began := time.Now()
				c.note(limit)
				<-ctx.Done()
				if took := time.Since(began); took < c.from || took > c.to {
					t.Errorf("the attempts end after %v, want %v to %v", took, c.from, c.to)
				}
			})
		})
	}
}

// A server that lets each attempt in and refuses it later is refused no longer than one that refuses at once.
func TestRefusedAfterLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusals = 10 * time.Second
		limit, ctx, stop := newPatience(context.Background(), &locks.Request{Reach: 2 * time.Second, Refusals: refusals})
		defer stop()
		limit.connected()
		limit.answered()
		time.Sleep(2 * time.Second)
		began := time.Now()
		for ctx.Err() == nil && time.Since(began) < time.Minute {
			limit.refused()
			time.Sleep(50 * time.Millisecond)
			limit.connected()
			limit.answered()
			time.Sleep(2 * time.Second)
		}
		if took := time.Since(began); took < refusals || took > refusals+3*time.Second {
			t.Errorf("it was asked for %v", took)
		}
	})
}
