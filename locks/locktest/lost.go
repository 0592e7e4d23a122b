package locktest

import (
	"errors"
	"testing"

	"golock/locks"
)

// LostAnswers tests a store whose answers are lost. lose makes the next n answers to a step (join,
// renew or release) get lost. However many are lost, there is one grant, one ticket, one release.
// watch is the same store without lost answers.
func LostAnswers(t *testing.T, s, watch locks.Store, lose func(step string, times int32)) {
	t.Helper()
	lose("join", 2)
	holder := AcquireAtOnce(t, s, "n", Limit(2))
	lose("join", 2)
	second := AcquireAtOnce(t, s, "n", Limit(2))
	if f, g := holder.Grant().Fence, second.Grant().Fence; g <= f {
		t.Errorf("fence %d after %d", g, f)
	}
	lose("join", 2)
	w := Enqueue(t, s, "n", Limit(2))
	ExpectEntries(t, watch, "n", Counts{Holding: 2, Waiting: 1})
	lose("renew", 1)
	// Over a connection that was open before, the client may repeat the request by itself and succeed.
	if err := TryRenew(holder); errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew without an answer = %v", err)
	}
	Renew(t, holder)
	lose("release", 2)
	Release(t, holder)
	Release(t, holder)
	w.ExpectGrant()
	lose("", 0)
	if e := ExpectBusy(t, s, "n", Limit(2)); len(e.Holders) != 2 || e.Waiters != 0 {
		t.Errorf("busy: %v", e)
	}
	Release(t, second)
	Release(t, w.ExpectGrant())
	AwaitEntries(t, watch, "n", Counts{})
}
