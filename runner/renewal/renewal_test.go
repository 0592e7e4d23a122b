package renewal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"golock/locks"
)

// The renewer in virtual time. These tests are about promises, not about steps:
// whatever the store, the network and the scheduler do, the command is dead
// before the store may give the slot away; and what the promise of an outage
// covers disturbs nobody.

// bubbleClock is a locks.Clock in a synctest bubble.
func bubbleClock() locks.Instant { return locks.Instant(time.Now().UnixNano()) }

// reply is what becomes of one renewal.
type reply struct {
	there time.Duration // until the store has it; negative: never
	back  time.Duration // from then until its answer is here; negative: never
	err   error         // instead of an answer
}

// fakeLease is a lease in a store that keeps the time.
type fakeLease struct {
	locks.RenewableLease // what is not faked is not asked
	term                 locks.Term
	judge                func(n int) reply // of the n-th renewal, which comes now
	events               chan locks.Event

	mu     sync.Mutex // guards what follows
	gone   bool       // the store has taken it away
	expiry time.Time  // at the store
	times  []time.Time
}

func (f *fakeLease) expires() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expiry
}

// asked are the times of all renewals.
func (f *fakeLease) asked() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.times)
}

func newFakeLease(ttl time.Duration) *fakeLease {
	return &fakeLease{
		term: locks.Term{Asked: bubbleClock(), TTL: ttl}, expiry: time.Now().Add(ttl), events: make(chan locks.Event, 8),
		judge: func(int) reply { return reply{} },
	}
}

func (f *fakeLease) Grant() locks.Grant            { return locks.Grant{Slots: []int{0}} }
func (f *fakeLease) Release(context.Context) error { return nil }
func (f *fakeLease) Term() locks.Term              { return f.term }
func (f *fakeLease) Events() <-chan locks.Event    { return f.events }

var errNetwork = errors.New("a fault made by the test")

func (f *fakeLease) Renew(ctx context.Context) (locks.Term, error) {
	asked := bubbleClock()
	f.mu.Lock()
	n := len(f.times)
	f.times = append(f.times, time.Now())
	f.mu.Unlock()
	r := f.judge(n)
	if err := travel(ctx, r.there); err != nil {
		return locks.Term{}, err
	}
	err := f.renew(r.err)
	if err := travel(ctx, r.back); err != nil {
		return locks.Term{}, err
	}
	return locks.Term{Asked: asked, TTL: f.term.TTL}, err
}

// renew is the store's part.
func (f *fakeLease) renew(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone || time.Now().After(f.expiry) {
		return fmt.Errorf("store: %w", locks.ErrLost)
	}
	if err == nil {
		f.expiry = time.Now().Add(f.term.TTL)
	}
	return err
}

// travel takes its time, or all there is.
func travel(ctx context.Context, d time.Duration) error {
	var arrived <-chan time.Time
	if d >= 0 {
		arrived = time.After(d)
	}
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kept is a lease and its renewer, with somebody who attends to it.
type kept struct {
	*Renewer
	lease *fakeLease
	woken chan struct{}
	told  locks.Instant // the deadline that a watchdog would know
	lines []string
}

func keep(ttl, killAfter time.Duration) *kept {
	k := &kept{lease: newFakeLease(ttl), woken: make(chan struct{}, 1)}
	wake := func() {
		select {
		case k.woken <- struct{}{}:
		default:
		}
	}
	k.Renewer = New(k.lease, bubbleClock, killAfter, wake, func(_ bool, message string, _ ...any) { k.lines = append(k.lines, message) })
	k.told = k.KillAt()
	return k
}

// until attends until that time or until the slot is lost. check is called
// after each time.
func (k *kept) until(end time.Time, check func()) {
	for time.Now().Before(end) {
		k.Step()
		if k.Lost == nil {
			k.told = k.KillAt()
		}
		check()
		if k.Lost != nil {
			return
		}
		next := end
		if at := time.Unix(0, int64(k.WakeAt())); at.Before(end) {
			next = at
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-k.woken:
		}
		timer.Stop()
	}
}

// A random world: every renewal may arrive or not, be answered or not, late or
// at once, and whoever attends may be held up at any time for any time. The
// deadline that the watchdog knows is never later than the store's.
func TestDeadlineIsBeforeTheStores(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ttl := time.Duration(rapid.IntRange(1, 60).Draw(r, "ttl")) * time.Second
		killAfter := time.Duration(rapid.SampledFrom([]int{0, 100, 1000, 10000}).Draw(r, "kill after")) * time.Millisecond
		short := rapid.Int64Range(0, int64(20*time.Millisecond))
		delay := rapid.OneOf(short, short, short, rapid.Int64Range(0, int64(ttl)), rapid.Just(int64(-1)))
		replies := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) reply {
			answer := reply{there: time.Duration(delay.Draw(r, "there")), back: time.Duration(delay.Draw(r, "back"))}
			if rapid.IntRange(0, 9).Draw(r, "error") == 0 {
				answer.err = errNetwork
			}
			return answer
		}), 1, 20).Draw(r, "replies")
		type stretch struct {
			hint           bool
			attended, away int64
		}
		stretches := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) stretch {
			return stretch{rapid.Bool().Draw(r, "hint"), rapid.Int64Range(0, int64(ttl)).Draw(r, "attended"), rapid.Int64Range(0, int64(ttl)/2).Draw(r, "away")}
		}), 1, 10).Draw(r, "stretches")

		problem := ""
		synctest.Test(t, func(*testing.T) {
			k := keep(ttl, killAfter)
			defer k.Stop()
			k.lease.judge = func(n int) reply { return replies[n%len(replies)] }
			for _, s := range stretches {
				if s.hint {
					k.lease.events <- locks.Unsure
				}
				k.until(time.Now().Add(time.Duration(s.attended)), func() {
					if told := time.Unix(0, int64(k.told)); told.After(k.lease.expires()) {
						problem = fmt.Sprintf("the watchdog kills %v after the store gives the slot away", told.Sub(k.lease.expires()))
					}
				})
				if k.Lost != nil {
					if left := k.StopAt().Sub(bubbleClock()); left > 0 && !errors.Is(k.Lost, locks.ErrLost) {
						problem = fmt.Sprintf("given up %v early: %v", left, k.Lost)
					}
					return
				}
				time.Sleep(time.Duration(s.away))
			}
		})
		if problem != "" {
			r.Fatal(problem)
		}
	})
}

// An outage shorter than 2/3 TTL - stop window - 1.5 x TryLimit disturbs
// nobody, whenever it begins, whether the store refuses or is silent; and is
// told in two lines.
func TestOutageWithoutLoss(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, 5 * time.Minute} {
		for _, killAfter := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second} {
			for _, silent := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					covered := ttl*2/3 - min(killAfter, ttl/6) - min(ttl/10, time.Second)*3/2
					for shift := time.Duration(0); shift < ttl/3; shift += ttl / 30 {
						const rtt = 2 * time.Millisecond
						k := keep(ttl, killAfter)
						begin := time.Now().Add(ttl + shift)
						k.lease.judge = func(int) reply {
							if now := time.Now(); now.Before(begin) || !now.Before(begin.Add(covered)) {
								return reply{there: rtt / 2, back: rtt / 2}
							}
							if silent {
								return reply{there: -1}
							}
							return reply{err: errNetwork}
						}
						k.until(begin.Add(3*ttl), func() {})
						if k.Lost != nil {
							t.Errorf("TTL %v, kill after %v, an outage of %v at %v, silent %v: %v", ttl, killAfter, covered, shift, silent, k.Lost)
						}
						if n := len(k.lines); n != 0 && n != 2 {
							t.Errorf("TTL %v: %d lines: %s", ttl, n, strings.Join(k.lines, "; "))
						}
						k.Stop()
					}
				})
			}
		}
	}
}

// Without trouble there is one renewal in a third of the TTL.
func TestRenewInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(30*time.Second, 10*time.Second)
		k.until(time.Now().Add(10*time.Minute+time.Second), func() {})
		if n := len(k.lease.asked()); n != 60 || k.Lost != nil || len(k.lines) != 0 {
			t.Errorf("%d renewals in ten minutes, lost %v, lines %q; want 60", n, k.Lost, k.lines)
		}
		k.Stop()
	})
}

// When nobody answers, the stop signal comes the stop window before the end,
// and after a hold-up the clock is looked at before the store is asked.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(30*time.Second, 10*time.Second)
		k.lease.judge = func(int) reply { return reply{there: -1} }
		begin := time.Now()
		k.until(begin.Add(time.Minute), func() {})
		if want, got := 30*time.Second-300*time.Millisecond-2*time.Millisecond-5*time.Second, time.Since(begin); got != want {
			t.Errorf("given up after %v, want %v", got, want)
		}
		k.Stop()

		k = keep(30*time.Second, 10*time.Second)
		time.Sleep(26 * time.Second)
		k.Step()
		if want := "the slot could not be kept: no renewal for 26s: golock itself was stopped or held up"; k.Lost == nil || k.Lost.Error() != want {
			t.Errorf("held up past the end: %v, want %s", k.Lost, want)
		}
		k.Stop()

		// But an answer that came meanwhile counts.
		k = keep(30*time.Second, 10*time.Second)
		time.Sleep(11 * time.Second)
		k.Step()
		time.Sleep(15 * time.Second)
		k.Step()
		if k.Lost != nil {
			t.Errorf("there was an answer: %v", k.Lost)
		}
		k.Stop()
	})
}

// What is final is known at once, and not asked about again.
func TestFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const renewal, event = 10 * time.Second, 7 * time.Second
		for what, how := range map[string]struct {
			take func(*kept)
			when time.Duration
		}{
			"a renewal says so": {func(k *kept) { k.lease.gone = true }, renewal},
			"an event says so": {func(k *kept) {
				go func() {
					time.Sleep(event)
					k.lease.mu.Lock()
					k.lease.gone = true
					k.lease.mu.Unlock()
					k.lease.events <- locks.Evicted
				}()
			}, event},
		} {
			k := keep(30*time.Second, 10*time.Second)
			begin := time.Now()
			how.take(k)
			k.until(begin.Add(time.Minute), func() {})
			if !errors.Is(k.Lost, locks.ErrLost) || time.Since(begin) != how.when {
				t.Errorf("%s: lost %v after %v", what, k.Lost, time.Since(begin))
			}
			n := len(k.lease.asked())
			for range 10 {
				k.Step()
				time.Sleep(10 * time.Second)
			}
			if len(k.lease.asked()) != n {
				t.Errorf("%s: asked again", what)
			}
			if k.WakeAt() != 0 {
				t.Errorf("%s: there is more to do", what)
			}
			k.Stop()
		}
	})
}

// A hint has the store asked at once; one that comes while it is being asked
// has it asked again.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(30*time.Second, 10*time.Second)
		k.lease.judge = func(int) reply { return reply{there: 100 * time.Millisecond, back: 100 * time.Millisecond} }
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			k.lease.events <- locks.Unsure
			time.Sleep(50 * time.Millisecond)
			k.lease.events <- locks.Unsure
		}()
		k.until(begin.Add(5*time.Second), func() {})
		if len(k.lease.asked()) != 2 || k.lease.asked()[0].Sub(begin) != time.Second || k.lease.asked()[1].Sub(begin) != 1200*time.Millisecond {
			t.Errorf("asked at %v from %v, want after 1 s and 1.2 s", k.lease.asked(), begin)
		}
		k.Stop()
	})
}

// The end does not wait for a store that does not answer.
func TestRenewerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(30*time.Second, 10*time.Second)
		k.lease.judge = func(int) reply { return reply{there: -1} }
		k.until(time.Now().Add(10*time.Second+time.Millisecond), func() {})
		begin := time.Now()
		k.Stop()
		if took := time.Since(begin); took > stopLimit {
			t.Errorf("took %v", took)
		}
	})
}

// A fault in the store's code comes out where the run is.
func TestFaultWhileRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(3*time.Second, time.Second)
		defer k.Stop()
		defer func() {
			if _, ok := recover().(*locks.PanicError); !ok {
				t.Error("the panic is lost")
			}
		}()
		k.lease.judge = func(int) reply { panic("a fault made by the test") }
		k.until(time.Now().Add(2*time.Second), func() {})
	})
}
