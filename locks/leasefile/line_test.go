package leasefile_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/leasefile"
)

func TestPriority(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		holder := take(t, s, "n")
		low, first, second, high := queue(t, s, "n", priority(-1)), queue(t, s, "n"), queue(t, s, "n"), queue(t, s, "n", priority(7))
		var places []int
		for _, e := range list(t, s, "n")[1:] {
			places = append(places, e.Claim.Priority)
		}
		if !slices.Equal(places, []int{7, 0, 0, -1}) {
			t.Errorf("priorities in the line: %v", places)
		}
		if err := release(holder); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*waiter{high, first, second, low} {
			if err := release(w.granted()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestMaxQueue(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		take(t, s, "free", maxQueue(0))
		take(t, s, "n")
		queue(t, s, "n", maxQueue(1))
		var busy *locks.BusyError
		if _, err := s.Join(background, request(t, "n", maxQueue(1))); !errors.As(err, &busy) || busy.Waiters != 1 || len(busy.Holders) != 1 {
			t.Errorf("Join = %v", err)
		}
		queue(t, s, "n", maxQueue(2))
	})
}

// Who did not have to replace anybody when it came does not do so later, when
// others have come before it.
func TestReplacesWhenItComes(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, own := open(t, url), open(t, url)
		var looks atomic.Int64
		own.At(func(step string) {
			if step == "look" {
				looks.Add(1)
			}
		})
		running := take(t, s, "n", limit(2), replace(locks.ReplaceRunning))
		queue(t, s, "n", limit(2), weight(2))
		queue(t, own, "n", limit(2), replace(locks.ReplaceRunning)) // there would be room for it
		take(t, s, "n", limit(2), priority(1))
		seen := looks.Load()
		eventually(t, "it has looked", func() bool { return looks.Load() > seen+2 })
		if _, err := running.Renew(background); err != nil {
			t.Errorf("the holder: %v", err)
		}
	})
}

// The newest wins, among those that replace.
func TestReplace(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		running := take(t, s, "n", replace(locks.ReplaceRunning))
		plain := queue(t, s, "n")
		old := queue(t, s, "n", replace(locks.ReplaceWaiting))
		middle := queue(t, s, "n", replace(locks.ReplaceWaiting))
		<-old.done
		var evicted *locks.EvictedError
		if !errors.As(old.err, &evicted) || !strings.Contains(evicted.By, strconv.Itoa(os.Getpid())) {
			t.Errorf("the old waiter's Wait = %v", old.err)
		}
		if _, err := running.Renew(background); err != nil {
			t.Errorf("a holder was replaced by one that replaces waiters only: %v", err)
		}
		newest := queue(t, s, "n", replace(locks.ReplaceRunning))
		<-middle.done
		if !errors.Is(middle.err, locks.ErrLost) {
			t.Errorf("the middle waiter's Wait = %v", middle.err)
		}
		eventually(t, "the holder is told", func() bool {
			_, err := running.Renew(background)
			return errors.As(err, &evicted)
		})
		if newest.ended() || plain.ended() {
			t.Fatal("granted while the old command may still run")
		}
		if err := release(running); err != nil {
			t.Fatal(err)
		}
		if err := release(plain.granted()); err != nil {
			t.Fatal(err)
		}
		newest.granted()
	})
}

func TestEvict(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, other := open(t, url), open(t, url)
		l := take(t, s, "n")
		w, next := queue(t, s, "n"), queue(t, s, "n")
		refs := map[locks.State][]locks.Ref{}
		for _, e := range list(t, other, "n") {
			refs[e.State] = append(refs[e.State], e.Ref)
		}
		if err := other.Evict(background, refs[locks.Waiting][0], "the operator\x1b"); err != nil {
			t.Fatal(err)
		}
		<-w.done
		var evicted *locks.EvictedError
		if !errors.As(w.err, &evicted) || evicted.By != "the operator�" {
			t.Errorf("Wait = %v", w.err)
		}
		events := l.Events()
		for _, by := range []string{"the operator", "somebody else"} { // the first one counts
			if err := other.Evict(background, l.Grant().Ref, by); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-events:
		case <-time.After(patience):
			t.Fatal("the holder is not told")
		}
		if _, err := l.Renew(background); !errors.As(err, &evicted) {
			t.Errorf("Renew = %v", err)
		}
		if got := list(t, s, "n"); len(got) != 2 || got[0].Evicted != "the operator" {
			t.Errorf("entries %+v", got)
		}
		if next.ended() {
			t.Fatal("granted before the holder has gone")
		}
		if err := release(l); err != nil {
			t.Fatal(err)
		}
		next.granted()
		for _, ref := range []locks.Ref{l.Grant().Ref, request(t, "unknown").Ref} {
			if err := other.Evict(background, ref, "x"); !errors.Is(err, locks.ErrLost) {
				t.Errorf("Evict of what is not there = %v", err)
			}
		}
	})
}

// A waiter that is told to go in the middle of being granted goes.
func TestEvictedInMidGrant(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, other := open(t, url), open(t, url)
		l := take(t, s, "n")
		var armed atomic.Bool
		var ref locks.Ref
		s.At(func(step string) {
			if step == "fence" && armed.CompareAndSwap(true, false) {
				if err := other.Evict(background, ref, "the operator"); err != nil {
					t.Error(err)
				}
			}
		})
		w := queue(t, s, "n")
		for _, e := range list(t, other, "n") {
			if e.State == locks.Waiting {
				ref = e.Ref
			}
		}
		armed.Store(true)
		if err := release(l); err != nil {
			t.Fatal(err)
		}
		<-w.done
		var evicted *locks.EvictedError
		if !errors.As(w.err, &evicted) || armed.Load() {
			t.Errorf("Wait = %v, want that it is evicted", w.err)
		}
		release(take(t, other, "n"))
	})
}

// A waiter that is held up in the middle of being granted overtakes nobody who
// has come before it meanwhile.
func TestHeldUpInMidGrant(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, slow, later := open(t, url), open(t, url), open(t, url)
		var back atomic.Bool
		stop := func(s *leasefile.Store, at string) (arm func(), there <-chan struct{}, goOn func()) {
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

		first := take(t, s, "n")
		low := queue(t, slow, "n", priority(-1))
		armLow()
		if err := release(first); err != nil {
			t.Fatal(err)
		}
		<-lowThere // it has seen that the slot is free
		second := take(t, s, "n")
		high := queue(t, later, "n", priority(1))
		armHigh()
		<-highThere
		if err := release(second); err != nil {
			t.Fatal(err)
		}
		lowGoesOn()
		eventually(t, "it has made up its mind", func() bool { return back.Load() || low.ended() })
		if low.ended() {
			t.Error("it has overtaken the one with the higher priority")
		}
		highGoesOn()
		if err := release(high.granted()); err != nil {
			t.Fatal(err)
		}
		low.granted()
	})
}

// A hold outlives its process, and each machine counts it on its own clock.
func TestHold(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s, other := open(t, url), open(t, url)
		other.SetClock("other", func() locks.Instant { return locks.BootTime().Add(-time.Hour) })
		const length = 6 * time.Second
		began := locks.BootTime()
		l := take(t, s, "n", hold(length), ttl(shortTTL))
		if err := release(l); err != nil {
			t.Fatal(err)
		}
		refused(t, s, "n")
		refused(t, other, "n")
		if e := list(t, s, "n"); len(e) != 1 || e[0].HeldTill.Before(time.Now()) || e[0].HeldTill.After(time.Now().Add(length)) {
			t.Errorf("entries %+v", e)
		}
		w := queue(t, s, "n")
		w.granted()
		if took := locks.BootTime().Sub(began); took < length {
			t.Errorf("free after %v of %v", took, length)
		}
		// One that ends later than its hold leaves nothing.
		if err := release(w.lease); err != nil {
			t.Fatal(err)
		}
		l = take(t, s, "n", hold(time.Millisecond))
		time.Sleep(2 * time.Millisecond)
		if err := release(l); err != nil {
			t.Fatal(err)
		}
		// An eviction ends it at once.
		l = take(t, s, "n", hold(time.Hour))
		if err := release(l); err != nil {
			t.Fatal(err)
		}
		if err := other.Evict(background, l.Grant().Ref, "the operator"); err != nil {
			t.Fatal(err)
		}
		take(t, s, "n")
	})
}

// Runs that do not wait, each a process of its own, do not keep a dead holder
// alive by seeing it for the first time.
func TestDeadHolderAmongThoseWhoDoNotWait(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		l := take(t, open(t, url), "n", ttl(shortTTL))
		began := time.Now()
		eventually(t, "one of them is granted", func() bool {
			ticket, err := open(t, url).Join(background, request(t, "n", noWait))
			if err != nil {
				return false
			}
			lease, err := ticket.Wait(background)
			return err == nil && release(lease) == nil
		})
		if took := time.Since(began); locks.BootTime() < l.Term().End() {
			t.Errorf("granted after %v, before the end of the term", took)
		}
	})
}

// No clock of another machine has a part in anything: neither its CLOCK_BOOTTIME
// nor the times of files.
func TestClocksOfOthers(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		holder := open(t, url)
		l := take(t, holder, "n", ttl(keptTTL))
		stop := keep(t, l)
		var waiters []*waiter
		for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
			s := open(t, url)
			s.SetClock(fmt.Sprint("machine ", i), func() locks.Instant { return locks.BootTime().Add(off) })
			waiters = append(waiters, queue(t, s, "n", limit(3)))
			refused(t, s, "n")
		}
		odd := []time.Time{time.Now().Add(time.Hour), time.Now().Add(-time.Hour)}
		first := l.Term()
		for n := 0; l.Term().Asked.Sub(first.Asked) < 2*keptTTL; n++ {
			files, _ := filepath.Glob(directory(t, url) + "/*/*/*")
			for _, f := range files {
				_ = os.Chtimes(f, odd[n%2], odd[n%2])
			}
			for _, w := range waiters {
				if w.ended() {
					t.Fatalf("granted beside a holder that renews, or not kept: %v", w.err)
				}
			}
			time.Sleep(keptTTL / 20)
		}
		stop()
		for _, w := range waiters {
			w.granted()
		}
	})
}

// Whose Join had returned before another one's began is granted before it.
func TestNobodyOvertakes(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		type turn struct{ asked, joined, granted locks.Instant }
		var mu sync.Mutex
		var turns []turn
		holder := take(t, open(t, url), "n")
		var all sync.WaitGroup
		for range 24 {
			all.Go(func() {
				s, err := leasefile.Open(url)
				if err != nil {
					t.Error(err)
					return
				}
				my := turn{asked: locks.BootTime()}
				ticket, err := s.Join(background, request(t, "n"))
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
				if err := release(lease); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(500 * time.Microsecond) // some overlap, some do not
		}
		eventually(t, "all wait", func() bool { return len(list(t, open(t, url), "n")) == 25 })
		if err := release(holder); err != nil {
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

// At most N, with numbers that nobody else has.
func TestManyAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		var mu sync.Mutex
		used := map[int]bool{}
		var last int64
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				for range 4 {
					s, err := leasefile.Open(url)
					if err != nil {
						t.Error(err)
						return
					}
					ticket, err := s.Join(background, request(t, "n", limit(3), weight(1+i%2)))
					if err != nil {
						t.Error(err)
						return
					}
					lease, err := ticket.Wait(background)
					if err != nil {
						t.Error(err)
						return
					}
					g := lease.Grant()
					mu.Lock()
					for _, slot := range g.Slots {
						if used[slot] || slot > 2 {
							t.Errorf("slot %d is given twice, or is none", slot)
						}
						used[slot] = true
					}
					last = max(last, g.Fence)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					for _, slot := range g.Slots {
						delete(used, slot)
					}
					mu.Unlock()
					if err := release(lease); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if l := take(t, open(t, url), "n"); l.Grant().Fence <= last {
			t.Errorf("fence %d after %d", l.Grant().Fence, last)
		}
	})
}

// A fence that is ahead of the clock is counted on.
func TestFenceAheadOfTheClock(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		if err := take(t, s, "n").Release(background); err != nil {
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
		if got := take(t, s, "n").Grant().Fence; got != future+1 {
			t.Errorf("fence %d after %d", got, future)
		}
	})
}

// The stores of the three primitives keep each other out.
func TestPrimitivesTogether(t *testing.T) {
	dir := memory(t)
	for _, a := range leasefile.Schemes() {
		for _, b := range leasefile.Schemes() {
			l := take(t, open(t, a+"://"+dir), "n", ttl(shortTTL))
			refused(t, open(t, b+"://"+dir), "n")
			next := get(t, open(t, b+"://"+dir), "n") // when it is dead
			if _, err := l.Renew(background); !errors.Is(err, locks.ErrLost) {
				t.Errorf("%s after %s: Renew = %v", b, a, err)
			}
			if err := release(next); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A waiter that has died is one less, also if nobody stands behind it who would
// look after it.
func TestMaxQueueBesideTheDead(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		take(t, s, "n")
		const life = 500 * time.Millisecond
		if dead, err := s.Join(background, request(t, "n", priority(-1), ttl(life))); err != nil || !dead.Queued() { // it never looks again
			t.Fatalf("Join = %+v, %v; want a place in the line", dead, err)
		}
		eventually(t, "there is room in the line", func() bool {
			ticket, err := s.Join(background, request(t, "n", maxQueue(1)))
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
	onEach(t, func(t *testing.T, url string) {
		s, passing := open(t, url), open(t, url)
		take(t, s, "n")
		queue(t, s, "n")
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
			if _, err := passing.Join(background, request(t, "n", noWait, replace(locks.ReplaceWaiting))); err == nil {
				t.Error("it was granted")
			}
		}()
		<-there
		var busy *locks.BusyError
		if ticket, err := s.Join(background, request(t, "n", maxQueue(1), replace(locks.ReplaceWaiting))); !errors.As(err, &busy) || !busy.Full {
			t.Errorf("Join = %+v, %v; want that the queue is full", ticket, err)
		}
		close(goOn)
		<-done
	})
}

// Who has little time gets a place in the line, however long somebody else takes
// to get his. The time is virtual: what the test's machine takes does not count.
func TestLittleTimeBehindOneWhoChooses(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		synctest.Test(t, func(t *testing.T) {
			s, slow := open(t, url), open(t, url)
			for _, store := range []*leasefile.Store{s, slow} {
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
				if ticket, err := slow.Join(background, request(t, "n")); err != nil {
					t.Error(err)
				} else if l, err := ticket.Wait(background); err != nil || release(l.(locks.Leased)) != nil {
					t.Error(err)
				}
			}()
			<-there
			for _, c := range [][]change{nil, {maxQueue(3)}} {
				ctx, cancel := context.WithTimeout(context.Background(), 90*time.Millisecond)
				ticket, err := s.Join(ctx, request(t, "n", c...))
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
	onEach(t, func(t *testing.T, url string) {
		s := open(t, url)
		l := take(t, s, "n", hold(time.Hour))
		if err := release(l); err != nil {
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
		if n, err := s.Sweep(background, 0); n != 0 || err != nil {
			t.Errorf("%d removed, %v", n, err)
		}
		if got := list(t, s, "n"); len(got) != 1 || !got[0].Ended {
			t.Errorf("entries %+v, want the one that stays", got)
		}
	})
}

// Who has to come again, and cannot at once, comes again until he can.
func TestComingAgainIsHeldUp(t *testing.T) {
	for _, at := range []string{"choose", "choosing", "queued"} {
		t.Run(at, func(t *testing.T) {
			url := "mkdir://" + memory(t)
			holder := take(t, open(t, url), "n", ttl(time.Hour))
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
			w := queue(t, s, "n", ttl(2*time.Second))
			armed.Store(true)
			late.Store(int64(3 * time.Second)) // its place is gone
			<-failing
			select { // nothing can be seen of one that goes on trying
			case <-w.done:
			case <-time.After(50 * time.Millisecond):
			}
			restore()
			eventually(t, "it waits again", func() bool { return w.ended() || len(list(t, s, "n")) == 2 })
			if w.ended() {
				t.Fatalf("Wait = %v", w.err)
			}
			if err := release(holder); err != nil {
				t.Fatal(err)
			}
			w.granted()
		})
	}
}
