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
	began  time.Time
	queues bool          // the first answer is a place in the queue
	slow   time.Duration // how long each answer takes
	errs   []error
	asked  []time.Duration // when it was asked, since it began
}

func (s *script) Ask(ctx context.Context, step queue.Step) (Answer, locks.Instant, error) {
	if step != queue.Join {
		return Answer{Outcome: queue.Outcome{Verdict: queue.Released, Existed: true}}, 0, nil
	}
	s.asked = append(s.asked, time.Since(s.began))
	if s.slow > 0 {
		Pause(ctx, s.slow)
		if ctx.Err() != nil {
			return Answer{}, 0, NoAnswer{Cause: ctx.Err()}
		}
	}
	if s.queues && len(s.asked) == 1 {
		return Answer{Outcome: queue.Outcome{Verdict: queue.Queued, Place: 30}}, 0, nil
	}
	err := s.errs[min(len(s.asked), len(s.errs))-1]
	return Answer{Outcome: queue.Outcome{Verdict: queue.Granted}}, 0, err
}

func (*script) Sleep(ctx context.Context, nap queue.Nap, _ func()) (Answer, locks.Instant, error) {
	Pause(ctx, max(nap.For, shortestPause))
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
	noWait := locks.JoinLimits{Reach: 2 * s, Refusals: 10 * s, Total: 30 * s}
	waits := locks.JoinLimits{Reach: 10 * s}
	slowNoWait := noWait
	slowNoWait.Slowdown = func() float64 { return 4 }
	waitsBriefly := locks.JoinLimits{Reach: s / 5, Total: s / 5, LeastAnswer: 2 * s}
	for _, c := range []struct {
		what     string
		slow     time.Duration
		errs     []error
		limits   locks.JoinLimits
		limit    time.Duration
		from, to time.Duration // when it ends
		answered bool          // as the error says
		granted  bool
	}{
		{"nobody answers -n", 0, []error{errAway}, noWait, 0, 2 * s, 2 * s, false, false},
		{"nobody answers -n on a machine short of processors", 0, []error{errAway}, slowNoWait, 0, 8*s - 2*reachPart, 8 * s, false, false},
		{"no connection is left for -n there", 0, []error{errNoRoom}, slowNoWait, 0, 30 * s, 30 * s, true, false}, // Total
		{"nobody answers", 0, []error{errAway}, waits, 60 * s, 10 * s, 10 * s, false, false},
		{"no connection is left for -n", 0, []error{errNoRoom}, noWait, 0, 10 * s, 10 * s, true, false},
		{"no connection is left", 0, []error{errNoRoom}, waits, 60 * s, 60 * s, 60 * s, true, false},
		{"no connection is left for a short --wait", 0, []error{errNoRoom}, waits, 3 * s, 3 * s, 3 * s, true, false},
		{"it refuses, then it is away", 0, []error{errNoRoom, errAway}, noWait, 0, 10 * s, 10 * s, false, false},
		{"it is away, then it refuses", 0, []error{errAway, errNoRoom}, noWait, 0, 10 * s, 12 * s, true, false},
		{"connections get free", 0, []error{errNoRoom, errNoRoom, errNoRoom, errNoRoom, nil}, noWait, 0, 0, 4 * s, false, true},
		{"only a standby answers", 0, []error{errStandby}, noWait, 0, 2 * s, 2 * s, true, false},
		{"a standby becomes the primary", 0, []error{errStandby, nil}, noWait, 0, 0, s, false, true},
		{"it refuses for good", 0, []error{errNoRoom, errForGood}, noWait, 0, 0, s, false, false},
		{"its disk is full", 0, []error{errDisk}, waits, 60 * s, 0, 0, true, false},
		{"nobody answers a short --wait", 0, []error{errAway}, waitsBriefly, 0, s / 5, s / 5, false, false},
		{"no connection is left for a brief --wait", 0, []error{errNoRoom}, waitsBriefly, 0, s / 5, s / 5, true, false},
		{"it answers later than --wait", s, []error{nil}, waitsBriefly, 0, s, s, false, true},
		{"it refuses later than --wait", s, []error{errNoRoom, nil}, waitsBriefly, 0, s, s, true, false},
		{"it does not answer a short --wait", time.Minute, []error{nil}, waitsBriefly, 0, 2 * s, 2 * s, false, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				entry := &script{slow: c.slow, errs: c.errs}
				err := join(entry, locks.Request{Limits: c.limits}, c.limit)
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

// A server on another host that only takes connections has FirstAnswer for its first answer; one that
// has answered is there, though its next answer takes long.
func TestSlowAnswer(t *testing.T) {
	for _, c := range []struct {
		what     string
		note     func(*patience)
		from, to time.Duration // when the attempts end, after the note
	}{
		{"it takes a connection", (*patience).connected, FirstAnswer - reachPart, FirstAnswer},
		{"it answers", (*patience).answered, time.Minute, time.Minute},
		{"it answers, and takes another connection", func(p *patience) { p.answered(); p.connected() }, time.Minute, time.Minute},
		{"it takes a connection twice", func(p *patience) {
			p.connected()
			time.Sleep(time.Second)
			p.connected()
		}, FirstAnswer - reachPart, FirstAnswer},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, cancel := context.WithTimeout(context.Background(), time.Second+time.Minute)
				defer cancel()
				limit, ctx, stop := newPatience(all, locks.JoinLimits{Reach: 2 * time.Second})
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
		limit, ctx, stop := newPatience(context.Background(), locks.JoinLimits{Reach: 2 * time.Second, Refusals: refusals})
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

// A waiter whose time is over while the server has no connection for it got no slot in time. It is an outage
// only if the server was not there.
func TestTimeIsOver(t *testing.T) {
	for _, c := range []struct {
		what     string
		last     error
		isOutage bool
	}{
		{"no connection is left", errNoRoom, false},
		{"nobody answers", errAway, true},
		{"only a standby answers", errStandby, true},
		{"its disk is full", errDisk, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{queues: true, errs: []error{c.last}, began: time.Now()}
				engine := NewEngine("store", func(locks.Request) *script { return s }, func(locks.Ref, string) *script { return s })
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				admission, err := engine.Join(ctx, locks.Request{TTL: 30 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				_, err = admission.Wait(ctx)
				if isOutage := errors.As(err, new(*locks.OutageError)); isOutage != c.isOutage || err == nil {
					t.Errorf("%v, want an outage: %v", err, c.isOutage)
				}
				time.Sleep(leaveLimit)
				synctest.Wait()
			})
		})
	}
}

// far is an entry of a store whose round trips take so long.
type far struct {
	script
	trip   time.Duration
	steady int // this many answers come so late, the others are quick
	steps  []queue.Step
}

func (f *far) Ask(_ context.Context, step queue.Step) (Answer, locks.Instant, error) {
	f.steps = append(f.steps, step)
	sent := locks.Instant(time.Now().UnixNano())
	time.Sleep(f.trip)
	a := Answer{Outcome: queue.Outcome{Verdict: queue.Granted, Existed: true}, TTL: time.Second}
	if step == queue.Renew {
		a.Verdict = queue.Held
	}
	if len(f.steps) <= f.steady {
		a.Distance = locks.Distance{Trip: f.trip, Trips: 5}
	}
	return a, sent, nil
}

// A lease that the distance would lose is refused, and given back. One late answer does not tell.
func TestTooFar(t *testing.T) {
	for _, c := range []struct {
		what   string
		trip   time.Duration
		steady int
		want   string
	}{
		{"near", time.Millisecond, 9, ""},
		{"far", 100 * time.Millisecond, 9, ""},
		{"too far", 200 * time.Millisecond, 9, "store: a lease of 1s would be lost: a round trip takes 200ms, and a renewal that has to " +
			"connect first 1s (--ttl of at least 3s, or a store that is nearer)"},
		{"busy at first", 200 * time.Millisecond, 2, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &far{trip: c.trip, steady: c.steady}
				engine := NewEngine("store", func(locks.Request) *far { return s }, func(locks.Ref, string) *far { return s })
				admission, err := engine.Join(context.Background(), locks.Request{TTL: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				_, err = admission.Wait(context.Background())
				got := ""
				if err != nil {
					got = err.Error()
				}
				time.Sleep(leaveLimit)
				synctest.Wait()
				isGivenBack := s.steps[len(s.steps)-1] == queue.Leave
				if got != c.want || isGivenBack != (c.want != "") {
					t.Errorf("%q, want %q; steps %v", got, c.want, s.steps)
				}
			})
		})
	}
}
