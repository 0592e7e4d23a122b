package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
)

// shown is a store that is only looked at.
type shown struct {
	locks.Store
	leased bool
	err    error
	slow   time.Duration
	place  int // of the run, as the store shows it; 0: it is not listed
	looks  []time.Duration
	began  time.Time
}

func (s *shown) Abilities() locks.Abilities {
	if s.leased {
		return leasesOnly()
	}
	return locks.Abilities{}
}

func (s *shown) Entries(ctx context.Context, name string) ([]locks.Entry, error) {
	s.looks = append(s.looks, time.Since(s.began).Round(100*time.Millisecond))
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	all := []locks.Entry{{State: locks.Holding, PID: 7}, {State: locks.Waiting, Ref: locks.Ref{ID: [16]byte{9}}, Position: 1}}
	if s.place > 0 {
		all = append(all, locks.Entry{State: locks.Waiting, Position: s.place})
	}
	return all, nil
}

// waitsAt is a run that waits for a lock of the store, at a place.
func waitsAt(place int, store locks.Store, report func(*WaitProgress) time.Duration) *waitPhase {
	w := &waitPhase{
		Run:     &Run{Store: locks.Know(store), Request: locks.Request{Name: "n"}, Relay: testRelay, OnProgress: report, Log: func(bool, string, ...any) {}},
		attempt: &attempt{},
	}
	admission := locks.Admission(queuedAdmission{})
	w.attempt.queued.Store(&admission)
	w.attempt.ctx, w.attempt.cancel = context.WithCancel(context.Background())
	w.attempt.place.Store(int64(place))
	return w
}

// observe lets a run wait for a time, with a report each second, and gives the reports.
func observe(t *testing.T, s *shown, place int, d time.Duration) (told []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		r := waitsAt(place, s, func(w *WaitProgress) time.Duration {
			if w == nil {
				told = append(told, "over")
				return 0
			}
			told = append(told, fmt.Sprintf("%v: %d, %d %s", time.Since(s.began).Round(100*time.Millisecond), w.Place, len(w.Holders), w.Problem))
			return time.Second
		})
		r.noteQueued()
		for time.Since(s.began) < d {
			if err := r.updateProgress(); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		r.attempt.cancel()
		r.endProgress(true)
		synctest.Wait()
	})
	return told
}

func TestLooks(t *testing.T) {
	for _, c := range []struct {
		what   string
		store  shown
		place  int
		d      time.Duration
		looks  string
		finish string // what was told in the end
	}{
		{"near", shown{}, 2, 9 * time.Second, "[1s 4s 7s]", "2, 1 "},
		{"on a kernel's lock", shown{}, 0, 5 * time.Second, "[1s 4s]", "0, 1 "},
		{"leased", shown{leased: true}, 1, 9 * time.Second, "[1s 4s 7s]", "1, 1 "},
		{"far", shown{}, 100, 45 * time.Second, "[17s 37s]", "100, 1 "},
		{"far, leased", shown{leased: true}, 17, 45 * time.Second, "[]", "17, 0 "},
		{"moving on", shown{place: 3}, 5, 9 * time.Second, "[1s 4s 7s]", "3, 1 "},
		{"no longer far", shown{place: 3}, 20, 12 * time.Second, "[1s 4s 7s 10s]", "3, 1 "},
		{"very far", shown{}, 1000, 60 * time.Second, "[]", "1000, 0 "},
		{"slow", shown{slow: 400 * time.Millisecond}, 1, 20 * time.Second, "[1s 9.4s 17.8s]", "1, 1 "},
		{"out of reach", shown{err: errors.New("gone")}, 1, 5 * time.Second, "[1s 4s]", "1, 0 gone"},
	} {
		told := observe(t, &c.store, c.place, c.d)
		if got := fmt.Sprint(c.store.looks); got != c.looks {
			t.Errorf("%s: looks at %s, want %s", c.what, got, c.looks)
		}
		n := len(told)
		if told[n-1] != "over" || strings.Count(strings.Join(told, "|"), "over") != 1 || !strings.HasSuffix(told[n-2], c.finish) {
			t.Errorf("%s: told %q", c.what, told)
		}
		if !strings.HasPrefix(told[0], "0s:") || n < int(c.d/time.Second)*2/3 {
			t.Errorf("%s: told %d times: %q", c.what, n, told)
		}
	}
}

// A report does not wait long for a store, and endProgress waits for the end of a look where the process
// will be stopped.
func TestLookThatHangs(t *testing.T) {
	s := &shown{slow: time.Minute}
	told := observe(t, s, 1, 5*time.Second)
	if len(s.looks) != 1 || !strings.HasPrefix(told[1], "3s: 1, 0") {
		t.Errorf("%v, told %q", s.looks, told)
	}
}

// A panic in a look is the run's.
func TestLookThatPanics(t *testing.T) {
	w := waitsAt(1, &shown{}, func(*WaitProgress) time.Duration { return time.Nanosecond })
	w.Store.Store = nil // a call of its method panics
	var err error
	w.startLook()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if err = w.updateProgress(); err != nil {
			break
		}
	}
	if !errors.As(err, new(*locks.PanicError)) {
		t.Errorf("%v", err)
	}
}

// A look that has not ended in time, before the process was stopped, is of no use to the next
// waiting.
func TestLookOfAWaitingThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{shown: shown{place: 1}}
		w := waitsAt(1, s, func(*WaitProgress) time.Duration { return time.Second })
		w.noteQueued()
		time.Sleep(time.Second)
		if err := w.updateProgress(); err != nil || w.progress.looks == nil {
			t.Fatal("there is no look", err)
		}
		w.attempt.cancel()
		w.endProgress(true)
		time.Sleep(time.Minute)
		w.isQueuedNoted = false
		w.attempt.place.Store(2)
		w.noteQueued()
		if err := w.updateProgress(); err != nil || w.progress.report.Place != 2 || len(w.progress.report.Holders) != 0 {
			t.Errorf("%+v, %v", w.progress.report, err)
		}
		w.endProgress(true)
	})
}

// stubborn is a store whose looks heed no context.
type stubborn struct{ shown }

func (s *stubborn) Entries(_ context.Context, name string) ([]locks.Entry, error) {
	time.Sleep(30 * time.Second)
	return s.shown.Entries(context.Background(), name)
}
