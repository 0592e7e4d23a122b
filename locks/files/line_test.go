package files_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/files"
	. "golock/locks/locktest"
	"golock/test/testkit"
)

// Who did not have to replace anybody when it came does not do so later, when
// others have come before it.
func TestReplacesWhenItComes(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, own := open(t, url), open(t, url)
		var looks atomic.Int64
		own.At(func(step string) {
			if step == "look" {
				looks.Add(1)
			}
		})
		running := Take(t, s, "n", Limit(2), Replace(locks.ReplaceRunning))
		Queue(t, s, "n", Limit(2), Weight(2))
		Queue(t, own, "n", Limit(2), Replace(locks.ReplaceRunning)) // there would be room for it
		Take(t, s, "n", Limit(2), Priority(1))
		seen := looks.Load()
		testkit.Eventually(t, "it has looked", func() bool { return looks.Load() > seen+2 })
		if _, err := running.Renew(background); err != nil {
			t.Errorf("the holder: %v", err)
		}
	})
}

// Of several that are replaced none is let in because another one has gone.
func TestReplacesFromTheEnd(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, own, behind := open(t, url), open(t, url), open(t, url)
		var looks, told atomic.Int64
		behind.At(func(step string) {
			if step == "look" {
				looks.Add(1)
			}
		})
		Take(t, s, "n", Limit(2))
		second := Take(t, s, "n", Limit(2))
		light := Queue(t, behind, "n", Limit(2), Priority(-1), Replace(locks.ReplaceWaiting))
		heavy := Queue(t, s, "n", Limit(2), Weight(2), Replace(locks.ReplaceWaiting))
		testkit.Must(t, GiveBack(second))
		own.At(func(step string) {
			if step == "replace" && told.Add(1) == 2 {
				seen := looks.Load()
				testkit.Eventually(t, "the one behind has looked", func() bool { return light.IsOver() || looks.Load() > seen+2 })
			}
		})
		Queue(t, own, "n", Limit(2), Weight(2), Priority(-2), Replace(locks.ReplaceWaiting))
		for _, w := range []*Waiter{heavy, light} {
			var evicted *locks.EvictedError
			if <-w.Done; !errors.As(w.Err, &evicted) {
				t.Errorf("one that is replaced ends with %v", w.Err)
			}
		}
	})
}

// What only a hold kept has ended when it is replaced, whoever removes it.
func TestEvictWhatWasReplaced(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, own := open(t, url), open(t, url)
		old := Take(t, s, "n", Limit(2), Hold(time.Hour), Replace(locks.ReplaceRunning))
		testkit.Must(t, GiveBack(old))
		Take(t, s, "n", Limit(2))
		var told atomic.Bool
		goOn := make(chan struct{})
		defer close(goOn)
		own.At(func(step string) {
			switch {
			case step == "replace":
				told.Store(true)
			case told.Load():
				<-goOn
			}
		})
		Queue(t, own, "n", Limit(1), Replace(locks.ReplaceRunning))
		if err := s.Evict(background, old.Grant().Ref, "somebody"); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Evict = %v", err)
		}
	})
}

// A waiter that is told to go in the middle of being granted goes.
func TestEvictedInMidGrant(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, other := open(t, url), open(t, url)
		l := Take(t, s, "n")
		var armed atomic.Bool
		var ref locks.Ref
		s.At(func(step string) {
			if step == "fence" && armed.CompareAndSwap(true, false) {
				if err := other.Evict(background, ref, "the operator"); err != nil {
					t.Error(err)
				}
			}
		})
		w := Queue(t, s, "n")
		for _, e := range List(t, other, "n") {
			if e.State == locks.Waiting {
				ref = e.Ref
			}
		}
		armed.Store(true)
		if err := GiveBack(l); err != nil {
			t.Fatal(err)
		}
		<-w.Done
		var evicted *locks.EvictedError
		if !errors.As(w.Err, &evicted) || armed.Load() {
			t.Errorf("Wait = %v, want that it is evicted", w.Err)
		}
		GiveBack(Take(t, other, "n"))
	})
}

// A waiter that is held up in the middle of being granted overtakes nobody who
// has come before it meanwhile.
func TestHeldUpInMidGrant(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, slow, later := open(t, url), open(t, url), open(t, url)
		var back atomic.Bool
		stop := func(s *files.Store, at string) (arm func(), there <-chan struct{}, goOn func()) {
			var armed atomic.Bool
			reached, gate := make(chan struct{}), make(chan struct{})
			s.At(func(step string) {
				if step == "step back" {
					back.Store(true)
				}
				if step == at && armed.CompareAndSwap(true, false) {
					close(reached)
					<-gate
				}
			})
			return func() { armed.Store(true) }, reached, func() { close(gate) }
		}
		armLow, lowThere, lowGoesOn := stop(slow, "fence")
		armHigh, highThere, highGoesOn := stop(later, "look")

		first := Take(t, s, "n")
		low := Queue(t, slow, "n", Priority(-1))
		armLow()
		if err := GiveBack(first); err != nil {
			t.Fatal(err)
		}
		<-lowThere // it has seen that the slot is free
		second := Take(t, s, "n")
		high := Queue(t, later, "n", Priority(1))
		armHigh()
		<-highThere
		testkit.Must(t, GiveBack(second))
		lowGoesOn()
		testkit.Eventually(t, "it has made up its mind", func() bool { return back.Load() || low.IsOver() })
		if low.IsOver() {
			t.Error("it has overtaken the one with the higher priority")
		}
		highGoesOn()
		if err := GiveBack(high.Granted()); err != nil {
			t.Fatal(err)
		}
		low.Granted()
	})
}

// A hold outlives its process, and each machine counts it on its own clock.
func TestHold(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		s, other := openAt(t, url, "one", 0), openAt(t, url, "other", -time.Hour)
		const length = 6 * time.Second
		began := time.Now()
		l := Take(t, s, "n", Hold(length), TTL(shortTTL))
		testkit.Must(t, GiveBack(l))
		Refused(t, s, "n")
		Refused(t, other, "n")
		e := List(t, s, "n")
		if len(e) != 1 || e[0].HeldTill.Before(began) || e[0].HeldTill.After(time.Now().Add(length)) {
			t.Errorf("entries %+v", e)
		}
		w := Queue(t, s, "n")
		w.Granted()
		if took := time.Since(began); took < length {
			t.Errorf("free after %v of %v", took, length)
		}
		// One that ends later than its hold leaves nothing.
		testkit.Must(t, GiveBack(w.Lease))
		l = Take(t, s, "n", Hold(time.Millisecond))
		time.Sleep(2 * time.Millisecond)
		testkit.Must(t, GiveBack(l))
		Take(t, s, "n")
	})
}

// Runs that do not wait, each a process of its own, do not keep a dead holder
// alive by seeing it for the first time.
func TestDeadHolderAmongThoseWhoDoNotWait(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		l := Take(t, open(t, url), "n", TTL(shortTTL))
		began := time.Now()
		testkit.Eventually(t, "one of them is granted", func() bool {
			ticket, err := open(t, url).Join(background, NewRequest(t, "n", NoWait))
			if err != nil {
				return false
			}
			lease, err := ticket.Wait(background)
			return err == nil && GiveBack(lease) == nil
		})
		if took := time.Since(began); locks.BootTime() < l.Term().End() {
			t.Errorf("granted after %v, before the end of the term", took)
		}
	})
}

// No clock of another machine has a part in anything: neither its CLOCK_BOOTTIME
// nor the times of files.
func TestClocksOfOthers(t *testing.T) {
	virtually(t, func(t *testing.T, url string) {
		l := Take(t, openAt(t, url, "holder", 0), "n", TTL(keptTTL))
		stop := keep(t, l)
		var waiters []*Waiter
		for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
			s := openAt(t, url, fmt.Sprint("machine ", i), off)
			waiters = append(waiters, Queue(t, s, "n", Limit(3)))
			Refused(t, s, "n")
		}
		odd := []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)}
		first := l.Term()
		for n := 0; l.Term().Asked.Sub(first.Asked) < 2*keptTTL; n++ {
			files, _ := filepath.Glob(directory(t, url) + "/*/*/*")
			for _, f := range files {
				_ = os.Chtimes(f, odd[n%2], odd[n%2])
			}
			for _, w := range waiters {
				if w.IsOver() {
					t.Fatalf("granted beside a holder that renews, or not kept: %v", w.Err)
				}
			}
			time.Sleep(keptTTL / 20)
		}
		stop()
		for _, w := range waiters {
			w.Granted()
		}
	})
}

// Whose Join had returned before another one's began is granted before it.
func TestNobodyOvertakes(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		type turn struct{ asked, joined, granted locks.Instant }
		var mu sync.Mutex
		var turns []turn
		holder := Take(t, open(t, url), "n")
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				s, err := files.Open(url)
				if err != nil {
					t.Error(err)
					return
				}
				my := turn{asked: locks.BootTime()}
				ticket, err := s.Join(background, NewRequest(t, "n"))
				if err != nil {
					t.Error(err)
					return
				}
				my.joined = locks.BootTime()
				lease, err := ticket.Wait(background)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				my.granted = locks.BootTime()
				turns = append(turns, my)
				mu.Unlock()
				if err := GiveBack(lease); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Microsecond) // some overlap, some do not
		}
		testkit.Eventually(t, "all wait", func() bool { return len(List(t, open(t, url), "n")) == 13 })
		if err := GiveBack(holder); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.granted, b.granted) })
		for i, a := range turns {
			for _, b := range turns[:i] {
				if a.joined < b.asked {
					t.Errorf("granted after one that came %v later", b.asked.Sub(a.joined))
				}
			}
		}
	})
}

// A fence that is ahead of the clock is counted on.
func TestFenceAheadOfTheClock(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		if err := Take(t, s, "n").Release(background); err != nil {
			t.Fatal(err)
		}
		fences, err := filepath.Glob(directory(t, url) + "/*/fences")
		if err != nil || len(fences) != 1 {
			t.Fatal(fences, err)
		}
		future := time.Now().Add(time.Hour).UnixMicro()
		if err := os.Mkdir(fences[0]+"/"+strconv.FormatInt(future, 10), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := Take(t, s, "n").Grant().Fence; got != future+1 {
			t.Errorf("fence %d after %d", got, future)
		}
	})
}

// The stores of the three primitives keep each other out.
func TestPrimitivesTogether(t *testing.T) {
	t.Parallel()
	for _, a := range files.Schemes() {
		for _, b := range files.Schemes() {
			t.Run(a+" "+b, func(t *testing.T) {
				t.Parallel()
				dir := memory(t)
				l := Take(t, open(t, a+"://"+dir), "n", TTL(shortTTL))
				Refused(t, open(t, b+"://"+dir), "n")
				next := Get(t, open(t, b+"://"+dir), "n") // when it is dead
				if _, err := l.Renew(background); !errors.Is(err, locks.ErrLost) {
					t.Errorf("Renew = %v", err)
				}
				behind := Queue(t, open(t, a+"://"+dir), "n")
				testkit.Must(t, GiveBack(next))
				testkit.Must(t, GiveBack(behind.Granted()))
				sweepAll(t, b+"://"+dir)
			})
		}
	}
}

// A waiter that has died is one less, also if nobody stands behind it who would
// look after it.
func TestMaxQueueBesideTheDead(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		Take(t, s, "n")
		const life = 500 * time.Millisecond
		if dead, err := s.Join(background, NewRequest(t, "n", Priority(-1), TTL(life))); err != nil || !dead.Queued() { // it never looks again
			t.Fatalf("Join = %+v, %v; want a place in the line", dead, err)
		}
		testkit.Eventually(t, "there is room in the line", func() bool {
			ticket, err := s.Join(background, NewRequest(t, "n", MaxQueue(1)))
			if err == nil {
				ctx, cancel := context.WithCancel(background)
				cancel()
				_, _ = ticket.Wait(ctx)
			}
			return err == nil
		})
	})
}

// Who does not wait is none of those who wait, and makes no room by going.
func TestMaxQueueBesideThePassing(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s, passing := open(t, url), open(t, url)
		Take(t, s, "n")
		Queue(t, s, "n")
		there, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		passing.At(func(step string) {
			if step == "look" {
				once.Do(func() {
					close(there)
					<-goOn
				})
			}
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := passing.Join(background, NewRequest(t, "n", NoWait, Replace(locks.ReplaceWaiting))); err == nil {
				t.Error("it was granted")
			}
		}()
		<-there
		var busy *locks.BusyError
		if ticket, err := s.Join(background, NewRequest(t, "n", MaxQueue(1), Replace(locks.ReplaceWaiting))); !errors.As(err, &busy) || !busy.Full {
			t.Errorf("Join = %+v, %v; want that the queue is full", ticket, err)
		}
		close(goOn)
		<-done
	})
}

// Who has little time gets a place in the line, however long somebody else takes
// to get his. The time is virtual: what the test's machine takes does not count.
func TestLittleTimeBehindOneWhoChooses(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		synctest.Test(t, func(t *testing.T) {
			s, slow := open(t, url), open(t, url)
			for _, store := range []*files.Store{s, slow} {
				store.SetClock("virtual", func() locks.Instant { return locks.Instant(time.Now().UnixNano()) })
			}
			there, goOn := make(chan struct{}), make(chan struct{})
			slow.At(func(step string) {
				if step == "choosing" {
					close(there)
					<-goOn
				}
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				if ticket, err := slow.Join(background, NewRequest(t, "n")); err != nil {
					t.Error(err)
				} else if l, err := ticket.Wait(background); err != nil || GiveBack(l.(locks.RenewableLease)) != nil {
					t.Error(err)
				}
			}()
			<-there
			for _, c := range [][]Change{nil, {MaxQueue(3)}} {
				ctx, cancel := context.WithTimeout(context.Background(), 90*time.Millisecond)
				ticket, err := s.Join(ctx, NewRequest(t, "n", c...))
				if err != nil || !ticket.Queued() {
					t.Errorf("Join = %+v, %v; want a place in the line", ticket, err)
				} else if _, err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Wait = %v", err)
				}
				cancel()
			}
			close(goOn)
			<-done
		})
	})
}

// A listing that has missed a token in the moment in which it was given its last
// name costs nobody his slot: neither one whose process has ended by then, nor
// one that only stays.
func TestSweepMissesToken(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		s := open(t, url)
		l := Take(t, s, "n", Hold(time.Hour))
		if err := GiveBack(l); err != nil {
			t.Fatal(err)
		}
		line := filepath.Join(directory(t, url), locks.KeyOf("n").String(), "line")
		tokens, err := os.ReadDir(line)
		if err != nil || len(tokens) != 1 {
			t.Fatalf("tokens %v, %v", tokens, err)
		}
		here, away := filepath.Join(line, tokens[0].Name()), filepath.Join(line, "elsewhere")
		s.At(func(step string) {
			switch step {
			case "sweep line":
				_ = os.Rename(here, away)
			case "sweep records":
				_ = os.Rename(away, here)
			}
		})
		if n, err := s.Sweep(background, "", 0); n != 0 || err != nil {
			t.Errorf("%d removed, %v", n, err)
		}
		if got := List(t, s, "n"); len(got) != 1 || !got[0].Ended {
			t.Errorf("entries %+v, want the one that stays", got)
		}
	})
}

// Who has to come again, and cannot at once, comes again until he can.
func TestComingAgainIsHeldUp(t *testing.T) {
	for _, at := range []string{"choose", "choosing", "queued"} {
		t.Run(at, func(t *testing.T) {
			url := "mkdir://" + memory(t)
			holder := Take(t, open(t, url), "n", TTL(time.Hour))
			s := open(t, url)
			var late atomic.Int64
			s.SetClock("another machine's", func() locks.Instant { return locks.BootTime() + locks.Instant(late.Load()) })
			var usual unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
				t.Fatal(err)
			}
			restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &usual) }
			t.Cleanup(restore)
			var armed atomic.Bool
			failing := make(chan struct{})
			s.At(func(step string) {
				if step == at && armed.CompareAndSwap(true, false) {
					_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: usual.Max})
					close(failing)
				}
			})
			w := Queue(t, s, "n", TTL(2*time.Second))
			armed.Store(true)
			late.Store(int64(3 * time.Second)) // its place is gone
			<-failing
			select { // nothing can be seen of one that goes on trying
			case <-w.Done:
			case <-time.After(50 * time.Millisecond):
			}
			restore()
			testkit.Eventually(t, "it waits again", func() bool { return w.IsOver() || len(List(t, s, "n")) == 2 })
			if w.IsOver() {
				t.Fatalf("Wait = %v", w.Err)
			}
			if err := GiveBack(holder); err != nil {
				t.Fatal(err)
			}
			w.Granted()
		})
	}
}

// Who is still choosing its ticket when a newcomer is let into the queue, and goes
// before it then, is replaced all the same.
func TestReplacesWhoWasChoosing(t *testing.T) {
	onOne(t, func(t *testing.T, url string) {
		running := Replace(locks.ReplaceRunning)
		Take(t, open(t, url), "n")
		one, other := NewRequest(t, "n", running), NewRequest(t, "n", running)
		if bytes.Compare(one.Ref.ID[:], other.Ref.ID[:]) > 0 {
			one, other = other, one
		}
		slow := open(t, url)
		choosing, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		slow.At(func(step string) {
			if step == "queue" {
				once.Do(func() {
					close(choosing)
					<-goOn
				})
			}
		})
		evicted := make(chan error, 1)
		go func() {
			ticket, err := slow.Join(background, one)
			if err == nil {
				_, err = ticket.Wait(background)
			}
			evicted <- err
		}()
		<-choosing
		ticket, err := open(t, url).Join(background, other)
		if err != nil {
			t.Fatal(err)
		}
		close(goOn)
		ctx, cancel := context.WithTimeout(background, testkit.Patience)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = ticket.Wait(ctx)
		}()
		select {
		case err := <-evicted:
			if !errors.As(err, new(*locks.EvictedError)) {
				t.Errorf("the one ahead: %v, want that it is evicted", err)
			}
		case <-ctx.Done():
			t.Error("the one ahead stays")
		}
		cancel()
		<-done
	})
}
