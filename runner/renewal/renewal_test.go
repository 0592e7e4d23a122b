package renewal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
)

// The renewer in virtual time: when it renews, and when it gives up. That the command is dead
// before the store may give the slot away, package runner shows along every path
// (TestEveryPathOfALease).

// bubbleClock is a locks.Clock in a synctest bubble.
func bubbleClock() locks.Instant { return locks.Instant(time.Now().UnixNano()) }

var (
	errNetwork = errors.New("a fault made by the test")
	errSilence = errors.New("the store does not answer") // until the attempt is given up
)

// fakeLease is a lease in a store that is played.
type fakeLease struct {
	locks.Lease // nil
	began       time.Time
	ttl         time.Duration
	distance    locks.Distance
	events      chan struct{}

	mu        sync.Mutex      // guards what follows
	judge     func() error    // of a renewal; nil: it goes well
	delay     time.Duration   // of an answer
	hasFailed bool            // the last renewal has failed
	isPartial bool            // of several leases one cannot be renewed, but the others are
	asked     []time.Duration // when it was renewed, from began
}

func (f *fakeLease) Term() locks.Term {
	return locks.Term{Asked: bubbleClock(), TTL: f.ttl, Distance: f.distance}
}
func (f *fakeLease) Events() <-chan struct{} { return f.events }

func (f *fakeLease) Confirm(ctx context.Context) error {
	_, err := f.Renew(ctx)
	return err
}

func (f *fakeLease) Renew(ctx context.Context) (locks.Term, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, time.Since(f.began))
	term, err := f.Term(), error(nil)
	if f.judge != nil {
		err = f.judge()
	}
	took := 2 * f.distance.Trip
	if f.hasFailed { // the connection was given up
		took = f.distance.Renewal()
	}
	f.hasFailed = err != nil
	if err == errSilence {
		<-ctx.Done()
		return f.termAfter(ctx.Err(), term), ctx.Err()
	}
	time.Sleep(f.delay)
	select {
	case <-time.After(took):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return f.termAfter(err, term), err
}

// termAfter returns the term of a renewal with that result.
func (f *fakeLease) termAfter(err error, term locks.Term) locks.Term {
	if err != nil && !f.isPartial {
		return locks.Term{}
	}
	return term
}

// kept is a lease and its renewer.
type kept struct {
	*Renewer
	lease *fakeLease
	woken chan struct{}
	lines []string
}

func keep(t *testing.T, ttl, killAfter time.Duration, judge func() error) *kept {
	t.Helper()
	return keepAt(t, ttl, killAfter, locks.Distance{}, judge)
}

// keepAt is keep at a store that is far away.
func keepAt(t *testing.T, ttl, killAfter time.Duration, d locks.Distance, judge func() error) *kept {
	t.Helper()
	k := &kept{woken: make(chan struct{}, 1)}
	k.lease = &fakeLease{began: time.Now(), ttl: ttl, distance: d, judge: judge, events: make(chan struct{}, 8)}
	wake := func() {
		select {
		case k.woken <- struct{}{}:
		default:
		}
	}
	k.Renewer = New(k.lease, bubbleClock, killAfter, wake, func(_ bool, message string, _ ...any) { k.lines = append(k.lines, message) })
	t.Cleanup(k.Stop)
	return k
}

// attend does what a supervisor does, for a time or until the slot is lost, and gives how long that
// was.
func (k *kept) attend(d time.Duration) time.Duration {
	began := time.Now()
	for end := began.Add(d); time.Now().Before(end) && k.Lost == nil; {
		if k.Step(); k.Lost != nil {
			break
		}
		select {
		case <-time.After(min(time.Until(end), k.WakeAt().Sub(bubbleClock()))):
		case <-k.woken:
		}
	}
	return time.Since(began)
}

// renewals are the times of all renewals.
func (k *kept) renewals() []time.Duration {
	synctest.Wait()
	k.lease.mu.Lock()
	defer k.lease.mu.Unlock()
	return slices.Clone(k.lease.asked)
}

// An outage shorter than 2/3 TTL - stop window - 1.5 x TryLimit disturbs nobody, whenever it
// begins, whether the store refuses or is silent; and is logged in two lines.
func TestOutageWithoutLoss(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 30 * time.Second, 5 * time.Minute} {
		for _, killAfter := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second} {
			for _, outage := range []error{errNetwork, errSilence} {
				synctest.Test(t, func(t *testing.T) {
					covered := ttl*2/3 - min(killAfter, ttl/6) - min(ttl/10, time.Second)*3/2
					for shift := time.Duration(0); shift < ttl/3; shift += ttl / 30 {
						begin := time.Now().Add(ttl + shift)
						k := keep(t, ttl, killAfter, func() error {
							if now := time.Now(); now.Before(begin) || !now.Before(begin.Add(covered)) {
								return nil
							}
							return outage
						})
						k.lease.delay = 2 * time.Millisecond
						k.attend(shift + 4*ttl)
						if n := len(k.lines); k.Lost != nil || n != 0 && n != 2 {
							t.Errorf("TTL %v, kill after %v, %v for %v at %v: lost %v; lines: %s",
								ttl, killAfter, outage, covered, shift, k.Lost, strings.Join(k.lines, "; "))
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
		k := keep(t, 30*time.Second, 10*time.Second, nil)
		k.attend(10*time.Minute + time.Second)
		if n := len(k.renewals()); n != 60 || k.Lost != nil || len(k.lines) != 0 {
			t.Errorf("%d renewals in ten minutes, lost %v, lines %q; want 60", n, k.Lost, k.lines)
		}
	})
}

// When nobody answers, the stop signal comes the stop window before the end, and after a hold-up
// the clock is read before the store is asked.
func TestLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, 30*time.Second, 10*time.Second, func() error { return errSilence })
		if want, got := 30*time.Second-300*time.Millisecond-2*time.Millisecond-5*time.Second, k.attend(time.Minute); got != want {
			t.Errorf("given up after %v, want %v", got, want)
		}

		k = keep(t, 30*time.Second, 10*time.Second, nil)
		time.Sleep(26 * time.Second)
		k.Step()
		if want := "the slot could not be kept: no renewal for 26s: golock itself was stopped or held up"; k.Lost == nil || k.Lost.Error() != want {
			t.Errorf("held up past the end: %v, want %s", k.Lost, want)
		}

		// But an answer that came meanwhile counts.
		k = keep(t, 30*time.Second, 10*time.Second, nil)
		time.Sleep(11 * time.Second)
		k.Step()
		time.Sleep(15 * time.Second)
		k.Step()
		if k.Lost != nil {
			t.Errorf("there was an answer: %v", k.Lost)
		}
	})
}

// Of several leases one cannot be renewed in this attempt, another one in the next: none is lost.
func TestPartlyRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, 30*time.Second, 10*time.Second, func() error { return errNetwork })
		k.lease.isPartial = true
		if got := k.attend(5 * time.Minute); got != 5*time.Minute || k.Lost != nil {
			t.Errorf("given up after %v: %v", got, k.Lost)
		}
	})
}

// What is final is known at once, and not asked again.
func TestFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const renewal, event = 10 * time.Second, 7 * time.Second
		for _, at := range []time.Duration{renewal, event} {
			k := keep(t, 30*time.Second, 10*time.Second, func() error { return locks.ErrLost })
			if at == event {
				time.AfterFunc(event, func() { k.lease.events <- struct{}{} })
			}
			if got := k.attend(time.Minute); !errors.Is(k.Lost, locks.ErrLost) || got != at {
				t.Errorf("lost %v after %v, want %v", k.Lost, got, at)
			}
			for range 10 {
				k.Step()
				time.Sleep(10 * time.Second)
			}
			if n := len(k.renewals()); n != 1 || k.WakeAt() != 0 {
				t.Errorf("%d renewals, the next at %v", n, k.WakeAt())
			}
		}
	})
}

// A hint has the store asked at once; one that comes while it is being asked has it asked again.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, 30*time.Second, 10*time.Second, nil)
		k.lease.delay = 200 * time.Millisecond
		for _, at := range []time.Duration{time.Second, time.Second + 50*time.Millisecond} {
			time.AfterFunc(at, func() { k.lease.events <- struct{}{} })
		}
		k.attend(5 * time.Second)
		if got := k.renewals(); !slices.Equal(got, []time.Duration{time.Second, 1200 * time.Millisecond}) {
			t.Errorf("asked after %v, want after 1 s and 1.2 s", got)
		}
	})
}

// The end does not wait for a store that does not answer.
func TestRenewerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, 30*time.Second, 10*time.Second, nil)
		k.lease.delay = time.Minute // whatever its context says
		k.attend(10*time.Second + time.Millisecond)
		began := time.Now()
		k.Stop()
		if took := time.Since(began); took > stopLimit {
			t.Errorf("took %v", took)
		}
		time.Sleep(k.lease.delay)
	})
}

// Where the store is far away an attempt has time to connect, and two of them fit before the stop signal:
// one renewal that hangs does no harm. A TTL that is too short for that is warned of.
func TestFarAway(t *testing.T) {
	const trips = 6
	for _, c := range []struct {
		ttl, trip time.Duration
		isWarned  bool
	}{
		{30 * time.Second, time.Millisecond, false},
		{30 * time.Second, 200 * time.Millisecond, false},
		{30 * time.Second, time.Second, false},
		{5 * time.Second, 200 * time.Millisecond, false},
		{4 * time.Second, 200 * time.Millisecond, false},
		{3 * time.Second, 200 * time.Millisecond, true},
		{10 * time.Second, time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, isLost := time.Now(), false
			k := keepAt(t, c.ttl, 10*time.Second, locks.Distance{Trip: c.trip, Trips: trips}, func() error {
				if isLost || time.Since(began) < 2*c.ttl {
					return nil
				}
				isLost = true
				return errSilence
			})
			k.attend(6 * c.ttl)
			isWarned := slices.ContainsFunc(k.lines, func(line string) bool { return strings.Contains(line, "too far away") })
			if isWarned != c.isWarned || k.Lost != nil && !c.isWarned {
				t.Errorf("TTL %v, round trip %v: lost %v; lines: %q; want a warning: %v", c.ttl, c.trip, k.Lost, k.lines, c.isWarned)
			}
			k.Stop()
			synctest.Wait()
		})
	}
}
