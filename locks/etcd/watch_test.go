package etcd

import (
	"errors"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/queue"
)

// After a restore two waiters can have the same ticket. The one with the higher ID hears that the other one has left.
func TestTieOfTickets(t *testing.T) {
	k := keys{"golock/0123/"}
	first, second := strings.Repeat("a", 32), strings.Repeat("b", 32)
	waiterKey := func(id string) string {
		return k.waiter(&queue.Entry{ID: id, Claim: locks.Claim{Weight: 1, Max: 1, Ticket: 7}})
	}
	s := k.newState(locks.Key{}, &txnAnswer{})
	for i, id := range []string{first, second} {
		entryLease, _ := leasesOfText(id)
		s.put(&pair{key: waiterKey(id), created: int64(8 + i), changed: int64(8 + i), lease: entryLease})
	}
	if len(s.waiters) != 2 {
		t.Fatalf("%d waiters, want 2", len(s.waiters))
	}
	w := &watch{state: s}
	left := &news{events: []event{{pair: pair{key: waiterKey(first), changed: 10}, deleted: true}}}
	if !w.note(left, second) {
		t.Error("the second waiter is not told that the first one has left")
	}
}

// A proxy whose members are away answers with a status of HTTP. That is an outage, which ends no waiting.
func TestStatusOfProxies(t *testing.T) {
	for text, isOutage := range map[string]bool{"429": true, "502": true, "503": true, "504": true, "404": false, "200": false} {
		err := statusOf(map[string]string{":status": text})
		answer, isStatus := errors.AsType[*status](err)
		if (isStatus && answer.isOfMember()) != isOutage {
			t.Errorf("HTTP status %s: %v; want an outage: %v", text, err, isOutage)
		}
	}
}
