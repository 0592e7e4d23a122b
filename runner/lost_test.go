package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/local"
	"golock/test/testkit"
)

// A lease that is over before the command could begin is an outage, or an eviction: the command is
// not started, so nothing was lost while it ran. No hold stays behind.
func TestLostBeforeStart(t *testing.T) {
	const ttl = time.Minute
	for _, age := range map[string]time.Duration{
		"the answer came when the lease was over":   2 * ttl,
		"there is no time left to stop a command":   ttl * 19 / 20,
		"there is little time left to stop it, too": ttl * 9 / 10,
	} {
		for _, c := range []struct {
			renewal error
			kind    Kind
		}{
			{nil, Refused},
			{errors.New("connection refused"), Refused},
			{locks.ErrLost, Refused},
			{&locks.EvictedError{By: "golock break"}, Busy},
		} {
			store := newLeasedStore(t, ttl)
			store.age, store.renew = age, func() error { return c.renewal }
			ran := filepath.Join(t.TempDir(), "ran")
			r := testRun(t, store, "touch", ran)
			r.Request.Hold = time.Hour
			o := r.Do()
			if o.Kind != c.kind || o.Ran != 0 || o.Kind == Refused && errors.Is(o.Err, locks.ErrLost) {
				t.Errorf("a lease of %v that is %v old, renewal: %v: %+v, want %v", ttl, age, c.renewal, o, c.kind)
			}
			if testkit.Exists(ran) {
				t.Error("the command ran")
			}
			free(t, store.Store)
		}
	}
}

// A watchdog that was told to start the command and has not answered until the lease is over may have
// started it: the hold stays.
func TestNoAnswerBeforeTheLeaseIsOver(t *testing.T) {
	store := newLeasedStore(t, time.Second)
	r := testRun(t, store, "true")
	r.Request.Hold = time.Hour
	r.Watchdog = filepath.Join(t.TempDir(), "watchdog")
	testkit.Must(t, os.WriteFile(r.Watchdog, []byte("#!/bin/sh\nexec sleep 300\n"), 0o755))
	if o := r.Do(); o.Kind != Lost || strings.Contains(o.Err.Error(), "nothing was started") {
		t.Errorf("outcome %+v, want that the slot was lost", o)
	}
	noChildren(t)
	if o := testRun(t, store.Store, "true").Do(); o.Kind != Busy {
		t.Errorf("outcome %+v, want that the hold keeps the slot", o)
	}
}

// acquire likewise gives no slot whose lease is over.
func TestTakenTooLate(t *testing.T) {
	store := newLeasedStore(t, time.Minute)
	store.age = time.Hour
	if lease, o := testRun(t, store, "true").Take(); o == nil || o.Kind != Refused {
		t.Errorf("lease %v, outcome %+v, want that it is refused", lease, o)
	}
	free(t, store.Store)
}

// Who is evicted on a local store between grant and start has run nothing either.
func TestEvictedBeforeStart(t *testing.T) {
	store := local.New(filepath.Join(t.TempDir(), "locks"))
	s := testRun(t, store, "true").prepare()
	if failed := s.wait(); failed != nil {
		t.Fatalf("%+v", failed)
	}
	defer s.lease.Release(t.Context())
	testkit.Must(t, store.Evict(t.Context(), []locks.Ref{s.lease.Grant().Ref}, "golock break")[0])
	var o *Outcome
	testkit.Eventually(t, "it is told", func() bool {
		o = s.takeSignals()
		return o != nil
	})
	if o.Kind != Busy || !strings.Contains(o.Err.Error(), "nothing was started") {
		t.Errorf("outcome %+v, want that it is busy", o)
	}
}

// A release that fails is a warning, unless a hold keeps the slot for longer than its lease: then
// nothing would be different.
func TestReleaseFails(t *testing.T) {
	for hold, warns := range map[time.Duration]bool{0: true, time.Second: true, time.Hour: false} {
		store := newLeasedStore(t, time.Minute)
		store.release = errors.New("no connection left")
		r := testRun(t, store, "true")
		r.Request.Hold = hold
		var warnings []string
		r.Log = func(warn bool, message string, _ ...any) {
			if warn {
				warnings = append(warnings, message)
			}
		}
		if o := r.Do(); o.Kind != Ended || len(warnings) > 0 != warns {
			t.Errorf("hold %v: %+v, warnings %q, want one: %v", hold, o, warnings, warns)
		}
	}
}

// The warning of a directory that was made comes also if the slot is granted just after a look at it.
func TestMadeJustBeforeTheGrant(t *testing.T) {
	r := testRun(t, local.New(filepath.Join(t.TempDir(), "made")), "true")
	r.Jitter = time.Millisecond // so that another goroutine joins
	warned := 0
	r.Log = func(warn bool, message string, _ ...any) {
		if warn && message == "lock directory made, because it was missing" {
			warned++
		}
	}
	w := &waitPhase{Run: r}
	w.outcomeIfUnwanted = func() *Outcome { // called after that look
		<-w.attempt.ended
		return nil
	}
	lease, failed := w.wait()
	if failed != nil || warned != 1 {
		t.Fatalf("outcome %+v, %d warnings", failed, warned)
	}
	testkit.Must(t, lease.Release(t.Context()))
}
