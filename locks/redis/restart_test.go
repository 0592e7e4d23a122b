package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/redis/redistest"
)

// A server is killed and comes back empty while a holder renews: nobody gets a
// second slot, the holder is put back, the waiters keep their order.
func TestEmptyRestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.SocketURL("quarantine=5s")
	s := open(t, url)
	holder := takeInTime(t, s, "n")
	grant := holder.Grant()
	first := queue(t, open(t, url), "n")
	second := queue(t, open(t, url), "n")
	listening(t, server, 2)
	server.Kill()
	server.Restart()
	busy := refused(t, s, "n")
	if !strings.Contains(busy.Reason, "come back") {
		t.Errorf("busy: %v", busy)
	}
	if err := renewUntil(holder, time.Now().Add(patience)); err != nil {
		t.Fatalf("Renew: %v", err)
	}
	becomes(t, s, "n", 1, 2)
	same(t, holder.Grant(), grant)
	// The quarantine ends, and the slot is still taken.
	eventually(t, "the quarantine ends", func() bool { return refused(t, s, "n").Reason == "" })
	first.waits()
	second.waits()
	release(t, holder)
	l := first.granted()
	if l.Grant().Fence <= grant.Fence {
		t.Errorf("fence %d after %d", l.Grant().Fence, grant.Fence)
	}
	second.waits()
	release(t, l)
	second.granted()
}

// A server that comes back with old data knows some holders and not others.
// All of them are put back.
func TestRestartWithOldData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.SocketURL("quarantine=2s")
	s := open(t, url)
	known := takeInTime(t, s, "n", limit(3))
	server.Do("SAVE")
	forgotten := take(t, s, "n", limit(3))
	short := take(t, s, "n", limit(3))
	grants := []locks.Grant{known.Grant(), forgotten.Grant()}
	server.Kill()
	server.Restart()
	if busy := refused(t, s, "n", limit(3)); !strings.Contains(busy.Reason, "come back") {
		t.Errorf("busy: %v", busy)
	}
	if err := short.Release(background); err != nil {
		t.Errorf("Release of a forgotten slot = %v", err)
	}
	for i, l := range []locks.Leased{known, forgotten} {
		if err := renewUntil(l, time.Now().Add(patience)); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		same(t, l.Grant(), grants[i])
	}
	eventually(t, "the quarantine ends", func() bool { return refused(t, s, "n").Reason == "" })
	if h, _ := count(t, s, "n"); h != 2 {
		t.Errorf("%d hold, want 2", h)
	}
}

// A holder that the server remembers as the waiter that it was before is put back,
// and waits no more: it would be given a slot for a second time.
func TestRestartWithAHolderThatWaited(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	url := server.SocketURL("quarantine=0")
	s := open(t, url)
	known := take(t, s, "n", limit(2))
	take(t, s, "n", limit(2), ttl(time.Second))
	w := queue(t, open(t, url), "n", limit(2))
	listening(t, server, 1)
	server.Do("SAVE")
	l := w.granted() // when the short lease is over
	l.Events()       // it listens as runs do
	grant := l.Grant()
	server.Kill()
	server.Restart()
	for _, l := range []locks.Leased{l, known} {
		if err := renewUntil(l, time.Now().Add(patience)); err != nil {
			t.Fatalf("Renew: %v", err)
		}
	}
	if h, w := count(t, s, "n"); h != 2 || w != 0 {
		t.Errorf("%d hold and %d wait, want 2 and 0", h, w)
	}
	subscribed(t, server, 1)
	release(t, known)
	if other := take(t, s, "n", limit(2)).Grant(); other.Slots[0] == grant.Slots[0] {
		t.Errorf("slot %d is given twice", other.Slots[0])
	}
	renew(t, l)
	same(t, l.Grant(), grant)
}

// Without a holder to wait for, the quarantine still ends by itself.
func TestQuarantineEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.SocketURL("quarantine=3s"))
	queue(t, s, "n").granted()
	// No quarantine for a name that nobody has used on a server that is old.
	eventually(t, "the server is old", func() bool {
		uptime, _ := strconv.Atoi(server.Info("server", "uptime_in_seconds"))
		return uptime >= 4
	})
	take(t, s, "m")
}

// FLUSHALL: who notices first keeps the slot, whoever finds it taken has lost.
func TestFlush(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	s := open(t, url)
	holder, other := take(t, s, "n", limit(2)), take(t, s, "n", limit(2))
	w := queue(t, s, "n", limit(2))
	listening(t, server, 1)
	grant := holder.Grant()
	server.Do("FLUSHALL")
	renew(t, holder)
	renew(t, other)
	same(t, holder.Grant(), grant)
	w.waits()

	server.Do("FLUSHALL")
	usurper := take(t, open(t, url), "n")
	if _, err := holder.Renew(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	if f := usurper.Grant().Fence; f <= grant.Fence {
		t.Errorf("fence %d after %d", f, grant.Fence)
	}
	if err := other.Release(background); err != nil { // forgotten: nothing of it is left
		t.Errorf("Release = %v", err)
	}
	renew(t, usurper)
}

// One whose entry was taken out does not come back.
func TestTakenOut(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	l := take(t, s, "n")
	attached := s.Attach(l.Grant().Ref)
	renew(t, attached)
	same(t, attached.Grant(), l.Grant())
	release(t, attached)
	if _, err := l.Renew(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	if err := l.Release(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	if err := s.Attach(l.Grant().Ref).Release(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Release of another = %v, want ErrLost", err)
	}
}

// A lease that ran out is lost, and nobody else's is touched.
func TestExpired(t *testing.T) {
	t.Parallel()
	_, url := steady(t)
	s := open(t, url)
	l := take(t, s, "n", ttl(time.Second))
	next := queue(t, s, "n").granted()
	if _, err := l.Renew(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
	if err := l.Release(background); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	renew(t, next)
}

// Events tells that the connection has gone, and that somebody took the slot.
func TestEvents(t *testing.T) {
	t.Parallel()
	server, url := steady(t)
	l := take(t, open(t, url), "n", ttl(3*time.Second))
	events := l.Events()
	expect := func(want locks.Event) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case got := <-events:
				if got == want {
					return
				}
			case <-end:
				t.Fatalf("no event %v", want)
			}
		}
	}
	expect(locks.Unsure) // it listens now
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	expect(locks.Unsure)
	subscribed(t, server, 1)
	channels := server.Do("PUBSUB", "CHANNELS").([]any)
	server.Do("PUBLISH", channels[0], "evicted")
	expect(locks.Evicted)
	server.Kill()
	expect(locks.Unsure)
}

// Who gives up in a quarantine is told that it was one.
func TestGivingUpInQuarantine(t *testing.T) {
	server := redistest.Start(t) // is young
	s := open(t, server.SocketURL("quarantine=20s"))
	ctx, cancel := context.WithCancel(background)
	ticket, err := s.Join(ctx, request(t, "n"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = ticket.Wait(ctx)
	var busy *locks.BusyError
	if !errors.As(err, &busy) || !strings.Contains(busy.Reason, "come back") {
		t.Errorf("Wait = %v", err)
	}
}
