package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
)

// namedLease is one of several; it notes its release.
type namedLease struct {
	locks.Lasting
	name     string
	term     locks.Term
	err      error // of every question
	released *[]string
}

func (namedLease) Files() []int                    { return nil }
func (l namedLease) Grant() locks.Grant            { return locks.Grant{Fence: int64(l.name[0])} }
func (l namedLease) Evicted() error                { return l.err }
func (l namedLease) Term() locks.Term              { return l.term }
func (l namedLease) Confirm(context.Context) error { return l.err }

func (l namedLease) Renew(context.Context) (locks.Term, error) { return l.term, l.err }

func (l namedLease) Release(context.Context) error {
	*l.released = append(*l.released, l.name)
	return l.err
}

// togetherOf makes leases of a, b and so on.
func togetherOf(all ...namedLease) (l *leases, released *[]string) {
	l, released = newLeases(nil, nil), &[]string{}
	for i, one := range all {
		one.name, one.released = string(rune('a'+i)), released
		l.names, l.all = append(l.names, one.name), append(l.all, one)
	}
	return l, released
}

// Several leases end with the first of them, however their TTLs differ.
func TestTermOfSeveralNames(t *testing.T) {
	const s = locks.Instant(time.Second)
	term := func(asked locks.Instant, ttl time.Duration) namedLease {
		return namedLease{term: locks.Term{Asked: asked, TTL: ttl}}
	}
	for what, c := range map[string]struct {
		all []namedLease
		ttl time.Duration
	}{
		"one":            {[]namedLease{term(100*s, time.Minute)}, time.Minute},
		"equal TTLs":     {[]namedLease{term(101*s, time.Minute), term(100*s, time.Minute)}, time.Minute},
		"a short later":  {[]namedLease{term(91*s, 30*time.Second), term(100*s, time.Second)}, time.Second},
		"a short before": {[]namedLease{term(100*s, time.Second), term(102*s, 30*time.Second)}, time.Second},
		"a long, late":   {[]namedLease{term(70*s, 30*time.Second), term(100*s, time.Second)}, time.Second},
		"none ends":      {[]namedLease{{}, {}}, 0},
	} {
		together, _ := togetherOf(c.all...)
		got := together.Term()
		ends := []locks.Instant{}
		for _, one := range c.all {
			ends = append(ends, one.term.End())
		}
		if got.TTL != c.ttl || got.Ends() && got.End() != slices.Min(ends) {
			t.Errorf("%s: the term is %+v, which ends at %v, want TTL %v and %v", what, got, got.End(), c.ttl, slices.Min(ends))
		}
	}
}

// The gravest error of several counts, and says which lock it is about. All are given back in reverse; that one was lost
// does not hide that another could not be given back.
func TestErrorsOfSeveralNames(t *testing.T) {
	outage, evicted := errors.New("no answer"), &locks.EvictedError{By: "anna"}
	for _, c := range []struct {
		first, second   error
		asked, released string // "" if there is no error
	}{
		{nil, nil, "", ""},
		{outage, nil, `lock "a": no answer`, `lock "a": no answer`},
		{outage, outage, `lock "a": no answer`, `lock "a": no answer; lock "b": no answer`},
		{outage, locks.ErrLost, `lock "b": the slot is not held`, `lock "a": no answer`},
		{locks.ErrLost, evicted, `lock "b": evicted by anna`, `lock "b": evicted by anna`},
		{nil, locks.ErrLost, `lock "b": the slot is not held`, `lock "b": the slot is not held`},
		{&locks.PanicError{Value: "x"}, evicted, `lock "a": panic: x`, `lock "a": panic: x`},
	} {
		together, released := togetherOf(namedLease{err: c.first}, namedLease{err: c.second})
		_, renewed := together.Renew(t.Context())
		says := func(what string, err error, want string) {
			t.Helper()
			if (err == nil) != (want == "") || !strings.HasPrefix(fmt.Sprint(err), want) && err != nil {
				t.Errorf("%s with %v, %v: %v, want %q", what, c.first, c.second, err, want)
			}
		}
		says("renewal", renewed, c.asked)
		says("question", together.Confirm(t.Context()), c.asked)
		says("release", together.Release(t.Context()), c.released)
		if !slices.Equal(*released, []string{"b", "a"}) {
			t.Errorf("given back in the order %q", *released)
		}
	}
}

// releasedLease is a lease whose release is the test's.
type releasedLease struct {
	locks.Lease
	release func() error
}

func (releasedLease) Grant() locks.Grant { return locks.Grant{} }
func (releasedLease) Evicted() error     { return nil }

func (l releasedLease) Release(context.Context) error { return l.release() }

// A run that leaves gives each slot back once and tells the result, also if the store grants the last one when it has
// begun to give back the first.
func TestLastSlotGrantedWhileTheRunLeaves(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no connection left")} {
		r := testRun(t, &played{}, "true")
		r.Earlier = []locks.Request{{Name: "m"}}
		var told []string
		r.Log = func(_ bool, message string, _ ...any) { told = append(told, message) }
		a := &attempt{cancel: func() {}, ended: make(chan struct{}), wanted: r.requests()}
		var first, last atomic.Int32
		a.add(releasedLease{release: func() error {
			if first.Add(1) == 1 {
				a.add(releasedLease{release: func() error { last.Add(1); return nil }})
				close(a.ended)
			}
			return failure
		}})
		_ = (&waitPhase{Run: r, attempt: a}).leave(time.Minute)
		want := []string{"slot given back", "slot given back"}
		if failure != nil {
			want[0] = "the slot could not be given back"
		}
		if first.Load() != 1 || last.Load() != 1 || !slices.Equal(told, want) {
			t.Errorf("%v: %d and %d releases, told %q, want %q", failure, first.Load(), last.Load(), told, want)
		}
	}
}

// The watchdog gives back the slots of all names, so the line about each says that it tries.
func TestWatchdogTakesOverAllSlots(t *testing.T) {
	r := testRun(t, &played{}, "true")
	var told []string
	r.Log = func(_ bool, _ string, fields ...any) { told = append(told, fmt.Sprint(fields...)) }
	done := make(chan struct{})
	defer close(done)
	silent := releasedLease{release: func() error { <-done; return nil }}
	w := &watchdog{pid: 1, socket: -1}
	for range 2 {
		tell := r.beginRelease(silent, func() {}).await(0, w)
		tell()
	}
	if len(told) != 2 || !strings.Contains(told[0], "the watchdog tries") || told[1] != told[0] {
		t.Errorf("told %q", told)
	}
}

// A run that ends before its command may not leave a hold behind: without a watchdog golock itself waits for the
// release, longer than a signal otherwise lets it wait.
func TestReleaseWithoutWatchdog(t *testing.T) {
	for _, isNetworked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := testRun(t, &played{}, "true")
			r.Request.Hold, r.Store.IsNetworked = time.Hour, isNetworked
			var told []string
			r.Log = func(_ bool, message string, fields ...any) { told = append(told, message+fmt.Sprint(fields...)) }
			ended := false
			slow := releasedLease{release: func() error {
				time.Sleep(releaseLimit / 2)
				ended = true
				return errors.New("no connection left")
			}}
			tell := r.beginRelease(slow, func() {}).await(leaveLimit, nil)
			tell()
			if !ended {
				t.Error("golock ends before the release")
			}
			done := make(chan struct{})
			silent := releasedLease{release: func() error { <-done; return errors.New("too late") }}
			tell = r.beginRelease(silent, func() {}).await(leaveLimit, nil)
			tell()
			if len(told) != 2 || !strings.Contains(told[1], "until its hold is over") {
				t.Errorf("networked %v: told %q", isNetworked, told)
			}
			close(done)
			synctest.Wait()
		})
	}
}
