package locktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/locktest/server"
	"golock/runner/renewal"
)

// KeepsFarAway keeps a slot on a server that is far away, as a run does. The lease must outlive the loss of
// all connections. open opens the store at another address than the server's.
func KeepsFarAway(t *testing.T, address string, open func(address string) locks.Store) {
	t.Helper()
	p := server.NewFarProxy(t, address, server.Way{Delay: 100 * time.Millisecond}) // a round trip of 200 ms
	s := open(p.Addr())
	// A renewal in NearRenewalLimit of this TTL could not connect to a SQL server. A busy machine has twice the
	// time that a renewal needs. The tests of package renewal find the limit, in virtual time.
	const ttl = 8 * time.Second
	warnings := keep(t, s, ttl, 2*ttl, p.Cut)
	if n := len(warnings); n > 1 { // one tells that the connection is gone
		t.Errorf("warnings: %q", warnings)
	}
}

// keep keeps a slot for span, and cuts the connections in the middle of it. It returns the warnings.
func keep(t *testing.T, s locks.Store, ttl, span time.Duration, cut func() int) (warnings []string) {
	t.Helper()
	l := Acquire(t, s, "n", TTL(ttl))
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	r := renewal.New(l, locks.BootTime, 10*time.Second, wake, func(isWarning bool, message string, pairs ...any) {
		if isWarning {
			warnings = append(warnings, strings.TrimSpace(fmt.Sprintln(append([]any{message}, pairs...)...)))
		}
	})
	defer r.Stop()
	began := locks.BootTime()
	cutAt, end := began.Add(span/2), began.Add(span)
	for r.Lost == nil && locks.BootTime() < end {
		if cutAt > 0 && locks.BootTime() >= cutAt {
			cutAt = 0
			cut()
		}
		r.Step()
		next := min(r.WakeAt(), end)
		if cutAt > 0 {
			next = min(next, cutAt)
		}
		select {
		case <-time.After(next.Sub(locks.BootTime())):
		case <-woken:
		}
	}
	if r.Lost != nil {
		t.Errorf("TTL %v, %+v: after %v: %v; warnings: %q", ttl, r.Term.Distance, locks.BootTime().Sub(began), r.Lost, warnings)
	}
	return warnings
}
