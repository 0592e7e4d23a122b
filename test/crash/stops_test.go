//go:build integration

package crash_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golock/internal/procfs"
	"golock/test/testkit"
)

// A golock, or one of its threads alone, is stopped at system calls from the grant to its end. It is
// continued at once, or when its lease has ended and the next one has the slot: never are two inside,
// and its exit code says whether its command ended by itself. Each store has half of the instants, in the
// deep run all.
// Slow: leases have to end.
func TestStoppedAtSystemCalls(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) string{"local": func(*testing.T) string { return "" }}
	for _, name := range []string{"redis", "mariadb", "mkdir"} {
		stores[name] = leasedStores[name]
	}
	names := slices.Sorted(maps.Keys(stores))
	testkit.Each(t, stores, func(t *testing.T, name string, store func(t *testing.T) string) {
		const instants, ttl = 4, 2 * time.Second // KILL goes out a tenth of a second before the end
		all, random := stopped(t, store(t), ttl, ttl*2/3, 0, -1, false), newRand(t)
		for i := range instants {
			if !testkit.Covers(i, slices.Index(names, name), 2) {
				continue
			}
			for how, stop := range map[string]syscall.Signal{"process": syscall.SIGSTOP, "thread": threadAlone} {
				number := 1 + (i*all+random.IntN(all))/instants
				t.Run(how, func(t *testing.T) {
					t.Parallel()
					t.Logf("stopped at number %d of %d", number, all)
					late, hold := name != "local" && i%3 != 0, ttl*2/3
					switch {
					case name == "local":
						hold = 0
					case late && i < instants/2:
						hold = 4 * ttl // the command ends by itself long after the lease
					}
					stopped(t, store(t), ttl, hold, stop, number, late)
				})
			}
		}
	})
}

// stopped runs a golock that waits and then gets the slot, stops it at the system call of that number,
// and returns how many system calls there were.
func stopped(t *testing.T, store string, ttl, hold time.Duration, stop syscall.Signal, number int, late bool) int {
	w := newWorld(t, store)
	ttls := func(d time.Duration) []string {
		if w.IsLocal() {
			return []string{"-v"}
		}
		return []string{"-v", "--ttl", d.String()}
	}
	holder := w.holding(ttls(longTTL)...)
	p, c := w.prepare(hold, ttls(ttl)...)
	c.Traced = true
	var counting atomic.Bool
	var calls atomic.Int64
	started, over, there := make(chan struct{}), make(chan error, 1), make(chan struct{})
	first := true
	go func() {
		over <- p.follow(c, func(*proc) syscall.Signal {
			if first {
				first = false
				close(started)
			}
			if counting.Load() && calls.Add(1) == int64(number) {
				close(there)
				return stop
			}
			return 0
		})
	}()
	<-started
	p.Says(" waiting")
	next := w.queued(ttls(longTTL)...)
	counting.Store(true)
	holder.release()
	select {
	case err := <-over: // it has ended before
		testkit.Must(t, err)
		over <- nil
	case <-there:
	}
	if late {
		w.awaitBegin(next)
	}
	close(p.goOn)
	testkit.Must(t, <-over)
	w.Eventually("the tracing is over", func() bool { return procfs.Status(p.PID, "TracerPid") == "0" })
	p.Untraced()
	w.Signal(p.PID, syscall.SIGCONT)
	for _, p := range w.procs {
		p.judged = true
	}
	w.finish()
	// On a busy machine a lease as short as these may end by itself.
	for _, p := range w.procs {
		switch r := p.Wait(); {
		case r.Code == 0 && p.begins == 1 && p.ends == 1:
		case r.Code == 79 && !w.IsLocal(): // its command may just have ended
		case r.Code == 69 && !w.IsLocal() && p.begins == 0: // it was over before the command began
		default:
			t.Errorf("golock %d: signal %v %v, its command began %d times and ended %d times", p.token, r.Signal, r, p.begins, p.ends)
		}
	}
	return int(calls.Load())
}

// A waiter that gets TSTP just when the slot comes to it either has the slot, or has left the queue and
// the slot is free. (At more moments in the deep run.)
func TestTSTPWhenTheSlotComes(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	w := newWorld(t, "")
	for range testkit.Rounds(10, 50) {
		holder := w.holding()
		waiter := w.queued()
		holder.release()
		for end := time.Now().Add(time.Duration(random.Int64N(int64(600 * time.Microsecond)))); time.Now().Before(end); {
		} // a sleep is not as exact
		left := func() bool { return strings.Contains(waiter.Stderr(), "left the queue") }
		w.Signal(waiter.PID, syscall.SIGTSTP)
		holder.Wait()
		w.Eventually("the golock leaves, its command stops, or both end", func() bool {
			return !waiter.Running() || left() || slices.ContainsFunc(testkit.Children(waiter.PID), testkit.Stopped)
		})
		if left() {
			w.IsFree()
		}
		// A signal of a golock that has just stopped its command may be on its way.
		w.Eventually("the waiter ends", func() bool {
			w.Signal(waiter.PID, syscall.SIGCONT)
			return !waiter.Running()
		})
	}
	w.finish()
}
