//go:build integration

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/locktest"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A free slot takes one request, after that for the connection. A login takes another one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	_, direct, proxy, behind := startProxy(t)
	locktest.Release(t, locktest.AcquireAtOnce(t, direct, "n")) // the server knows the script now
	l := locktest.AcquireAtOnce(t, behind, "n")
	if got := len(proxy.Requests()); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
	locktest.Release(t, l)
	if got := len(proxy.Requests()); got != 2 {
		t.Errorf("%d requests after the release, want 2", got)
	}
}

func TestLostReplies(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	lose := func(mode string, times int32) {
		var n atomic.Int32
		proxy.Judge(func(m string) redistest.Verdict {
			if m == mode && n.Add(1) <= times {
				return redistest.LoseReply
			}
			return redistest.Pass
		})
	}
	locktest.LostAnswers(t, s, direct, lose)
	holder := locktest.AcquireAtOnce(t, s, "n")
	lose("join", 2)
	var busy *locks.BusyError
	if _, err := s.Join(background, locktest.NewRequest(t, "n", locktest.Within(holder.Grant().Ref))); !errors.As(err, &busy) || busy.Inside == nil {
		t.Errorf("Join inside = %v, want nested", err)
	}
}

// A release that is repeated after one without an answer has not lost the slot.
func TestReleaseAgain(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	holder := locktest.AcquireAtOnce(t, s, "n")
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "release" {
			return redistest.LoseReply
		}
		return redistest.Pass
	})
	wantOutage(t, holder.Release(background), "")
	locktest.AwaitEntries(t, direct, "n", locktest.Counts{})
	proxy.Judge(func(string) redistest.Verdict { return redistest.Pass })
	locktest.Release(t, holder)
}

// Whatever arrives a second time, late, leaves nothing behind.
func TestDelayedDuplicates(t *testing.T) {
	t.Parallel()
	_, direct, proxy, s := startProxy(t)
	holder := locktest.AcquireAtOnce(t, s, "n")
	locktest.ExpectBusy(t, s, "n")
	gaveUp := locktest.Enqueue(t, s, "n")
	gaveUp.Leave()
	locktest.AwaitEntries(t, direct, "n", locktest.Counts{Holding: 1})
	nested, err := s.Join(background, locktest.NewRequest(t, "n", locktest.Within(holder.Grant().Ref)))
	if err == nil {
		t.Fatalf("granted inside itself: %v", nested)
	}
	w := locktest.Enqueue(t, s, "n")
	locktest.Release(t, holder)
	locktest.Release(t, w.ExpectGrant())
	locktest.AwaitEntries(t, direct, "n", locktest.Counts{})
	// The joins alone too: no release or leave comes after them.
	for _, modes := range [][]string{nil, nil, {"join"}} {
		proxy.Replay(modes...)
		locktest.ExpectEntries(t, direct, "n", locktest.Counts{})
	}
	locktest.AcquireAtOnce(t, direct, "n")
}

// What trying again does not cure is told at once, to doctor too, and without the password.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t, "--requirepass", "right-s3cret")
	at := "@" + server.Addr()
	for _, tt := range []struct{ url, want string }{
		{"redis://:wrong-s3cret" + at, "login of the default user is refused: WRONGPASS"},
		{"redis://nobody:wrong-s3cret" + at, `login of the user "nobody" is refused: WRONGPASS`},
		{"redis://" + server.Addr(), "the server wants a password for the default user, and the URL has none (user and password"},
		{"redis://bob" + at, `the server wants a password for the user "bob", and the URL has none (user and password`},
		{"redis://:right-s3cret" + at + "/9999", "DB index"},
		{"rediss://" + server.Addr(), "no TLS answer from " + server.Addr() +
			": it speaks Redis without TLS (did you mean redis://"},
		{"rediss://127.0.0.1:1?ca=/nowhere", "option ca"},
	} {
		s := open(t, tt.url)
		_, examined := s.Examine(background, time.Minute)
		for i, err := range append(failures(s), locktest.ExpectFinalError(t, s, "n"), examined) {
			text := fmt.Sprint(err)
			var outage *locks.OutageError
			if errors.As(err, &outage) || !strings.HasPrefix(text, s.URL()+": ") || !strings.Contains(text, tt.want) {
				t.Errorf("%s: question %d: %v", tt.url, i, err)
			} else if strings.Contains(text, "s3cret") {
				t.Errorf("the error %q shows the password", text)
			}
		}
	}
	locktest.Release(t, locktest.AcquireAtOnce(t, open(t, "redis://:right-s3cret"+at+"?quarantine=0"), "n"))
}

// A waiter can give up although the server does not answer.
func TestLeaveFrozenServer(t *testing.T) {
	t.Parallel()
	server, _, _, w := startQueue(t)
	server.Pause()
	defer server.Resume()
	start := time.Now()
	w.Leave()
	testkit.Lasted(t, start, 0, locktest.LongTTL/6)
}

// A process that is about to be stopped has left the queue when Wait returns, however long
// that takes: a stopped one would hold up all others.
func TestLeaveBeforeStandingStill(t *testing.T) {
	t.Parallel()
	_, direct, proxy, behind := startProxy(t)
	locktest.AcquireAtOnce(t, direct, "n")
	ctx, cancel := context.WithCancel(background)
	r := locktest.NewRequest(t, "n")
	r.Hooks.StopsSoon = func() bool { return true }
	admission, err := behind.Join(ctx, r)
	testkit.Must(t, err)
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "leave" {
			time.Sleep(150 * time.Millisecond) // far away
		}
		return redistest.Pass
	})
	cancel()
	if _, err := admission.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v, want that it was cancelled", err)
	}
	locktest.ExpectEntries(t, direct, "n", locktest.Counts{Holding: 1})
}

// A waiter whose connection is cut listens again at once, unless there is no server. The
// fastest of a few counts, as the machine may be busy.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	server, _, _, _ := startQueue(t)
	looked := func() (at float64) {
		eachRecord(t, server, func(_, _ any, r map[string]any) { at = max(at, r["join"].(float64)) })
		return at
	}
	fastest := time.Hour
	for range 5 {
		last, start := looked(), time.Now()
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
		testkit.Eventually(t, "it has looked as a subscriber", func() bool { return looked() > last })
		fastest = min(fastest, time.Since(start))
	}
	if fastest >= lease.RetryPause {
		t.Errorf("it listened again after %v at best", fastest)
	}
}

// A waiter that vanishes after it was told to ask, and before it asks, holds up the next for a second
// at most, not for its TTL. (One that sleeps: testKilledWaiters.)
func TestVanishedAtItsTurn(t *testing.T) {
	t.Parallel()
	server, direct, proxy, behind := startProxy(t)
	holder := locktest.AcquireAtOnce(t, direct, "n")
	locktest.Enqueue(t, behind, "n")
	next := locktest.Enqueue(t, direct, "n")
	awaitWaiters(t, server, 2)
	forgetJoins(t, server)
	told := make(chan struct{}, 100)
	proxy.Judge(func(mode string) redistest.Verdict {
		if mode == "join" {
			told <- struct{}{}
			return redistest.Hang
		}
		return redistest.Pass
	})
	locktest.Release(t, holder)
	<-told
	next.ExpectWaiting()
	proxy.Refuse(true)
	proxy.Cut()
	start := time.Now()
	next.ExpectGrant()
	testkit.Lasted(t, start, 0, locktest.LongTTL/6)
}

// A paused server is an outage: renewals fail, the lease is not lost.
func TestPausedServer(t *testing.T) {
	t.Parallel()
	server, url := startServer(t)
	l := locktest.AcquireAtOnce(t, open(t, url), "n")
	server.Pause()
	resume := time.AfterFunc(locktest.LongTTL/6, server.Resume)
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	if _, err := l.Renew(ctx); err == nil || errors.Is(err, locks.ErrLost) {
		t.Errorf("Renew at a paused server = %v", err)
	}
	if !resume.Stop() {
		t.Error("Renew was bounded by 300 ms and waited for the server")
	}
	server.Resume()
	renewEventually(t, l)
}

func TestScriptFlush(t *testing.T) {
	t.Parallel()
	server, _, l, w := startQueue(t)
	server.Do("SCRIPT", "FLUSH")
	locktest.Renew(t, l)
	server.Do("SCRIPT", "FLUSH")
	locktest.Release(t, l)
	server.Do("SCRIPT", "FLUSH")
	w.ExpectGrant()
}

// A server without memory accepts no new entry, and keeps those that it has.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server, s, l, w := startQueue(t)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if outage := wantOutage(t, locktest.ExpectJoinError(t, s, "m"), "maxmemory"); !outage.Answered {
		t.Errorf("Join = %v", outage)
	}
	locktest.Renew(t, l)
	locktest.Release(t, l)
	locktest.Renew(t, w.ExpectGrant())
}

// A lease outlives a bad network and the loss of its connection.
func TestFarAway(t *testing.T) {
	t.Parallel()
	locktest.KeepsFarAway(t, redistest.Shared(t).Addr(), func(address string) locks.Store {
		return open(t, "redis://"+address+"?quarantine=0")
	})
}
