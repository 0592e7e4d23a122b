package locktest

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"

	"golock/locks"
	"golock/test/testkit"
)

// These tests are for plain stores, whose URL is the lock. testHistories tests these stores too.

// The slot of a killed holder is free, unless a process lives that inherited it. A released slot is free in any
// case, except at an abstract name.
func testPlainKilledHolder(t *testing.T, w *world) {
	s := w.open()
	isFree := func() { Release(t, AcquireAs[locks.Lease](t, s, "label", NoWait)) }
	holder := w.granted("label", 1)
	ExpectBusy(t, s, "label")
	holder.Kill()
	isFree()

	holder = w.granted("label", 1)
	heir := holder.heir()
	holder.Kill()
	for range 20 {
		ExpectBusy(t, s, "label")
	}
	if all := List(t, s, ""); len(all) != 1 || all[0].PID != heir || all[0].State != locks.Holding {
		t.Errorf("%+v, want the heir %d", all, heir)
	}
	testkit.Must(t, syscall.Kill(heir, syscall.SIGKILL))
	Release(t, AcquireAs[locks.Lease](t, s, "label"))

	if strings.HasPrefix(w.url, "bind://@") {
		return // locks/bind: TestLeftBehind
	}
	for range 3 { // each leaves a daemon
		holder = w.granted("label", 1)
		heir = holder.heir()
		defer syscall.Kill(heir, syscall.SIGKILL)
		holder.release()
		isFree()
		if all := List(t, s, ""); len(all) != 0 {
			t.Errorf("%+v after the release", all)
		}
	}
}

// A nested run is told that it would wait for itself, also if it has not inherited the lock's descriptor.
// If the enclosing run does not hold any more, the nested run is refused like any other.
func testPlainNested(t *testing.T, w *world) {
	s := w.open()
	outer := AcquirePlain(t, s, 1)
	r := NewRequest(t, "label", NoWait, Within(outer.Grant().Ref))
	_, err := s.Join(context.Background(), r)
	var busy *locks.BusyError
	if !errors.As(err, &busy) || busy.Inside == nil || *busy.Inside != outer.Grant().Ref {
		t.Errorf("Join = %v", err)
	}
	Release(t, outer)

	w.granted("label", 1)
	if _, err = s.Join(context.Background(), r); !errors.As(err, &busy) || busy.Inside != nil {
		t.Errorf("Join = %v: the holder is not around us", err)
	}
}
