package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/locks/files"
	"golock/locks/locktest"
	"golock/test/testkit"
)

// The protocol of the lease files under every schedule with few switches: some requests,
// each with a store of its own, stop before each of their steps, and each choice of the
// next one is tried (Musuvathi and Qadeer, Iterative context bounding, 2007). One of them
// may stall before any step until all others are done, like a stopped or killed process.
// Time is virtual: it goes on only when all of them sleep.

// actor is one request of a schedule.
type actor struct {
	changes []locktest.Change
	late    bool // comes when one before it waits, or all are done

	store  *files.Store
	claim  locks.Claim
	gate   chan struct{} // lets it go on
	step   string        // before which it is stopped; "": it is not
	came   int           // when it began
	queued int           // when it had a place; 0: it has none
	inside bool
	done   bool
	stalls bool // it is, or was, held up for longer than its TTL
	lease  locks.Lease
}

type schedule struct {
	*locktest.Choices
	switches int          // that are left
	stalls   int          // likewise
	process  *files.Store // has read what this process is

	mu      sync.Mutex // guards what follows
	all     []*actor
	clock   int // counts what happens
	freed   int // when the last release began
	story   []string
	problem string
}

func (s *schedule) tell(i int, what string) {
	s.clock++
	s.story = append(s.story, fmt.Sprintf("%d %s", i, what))
}

func (s *schedule) wrong(format string, args ...any) {
	if s.problem == "" {
		s.problem = fmt.Sprintf(format, args...)
	}
}

// live takes the slot, and gives it back.
func (s *schedule) live(t *testing.T, i int) {
	w := s.all[i]
	s.mu.Lock()
	defer s.mu.Unlock() // and free in whatever the store does
	defer func() { w.done = true }()
	r := locktest.NewRequest(t, "n", w.changes...)
	r.TTL = stallTTL
	r.Ref.ID = [16]byte{byte(i)} // between equal tickets the ID decides, so it must not be random
	w.claim = r.Claim
	stop := func(step string) {
		s.mu.Lock()
		w.step = step
		s.mu.Unlock()
		<-w.gate
	}
	do := func(f func()) {
		s.mu.Unlock()
		f()
		s.mu.Lock()
	}
	w.store.At(func(step string) {
		switch step {
		case "built", "write", "signed", "observe":
			return // no other actor sees what these change
		}
		stop(step)
	})
	do(func() { stop("come") })
	w.came = s.clock
	var admission locks.Admission
	var lease locks.Lease
	var err error
	do(func() { admission, err = w.store.Join(background, r) })
	if errors.As(err, new(*locks.BusyError)) {
		s.tell(i, "is refused")
		return
	}
	if err == nil {
		if admission.Queued() {
			s.tell(i, "waits")
			w.queued = s.clock
		}
		do(func() { lease, err = admission.Wait(background) })
	}
	if err != nil {
		s.wrong("%d: %v", i, err)
		return
	}
	s.tell(i, fmt.Sprintf("holds %v", lease.Grant().Slots))
	s.granted(i, lease)
	do(func() { stop("release") })
	s.clock++
	s.freed, w.inside = s.clock, false
	do(func() { err = lease.Release(background) })
	if err != nil && !(w.stalls && (errors.Is(err, locks.ErrLost) || errors.As(err, new(*locks.OutageError)))) {
		s.wrong("%d: %v", i, err)
	}
	s.tell(i, "has released")
}

// granted checks a grant by the rule and the order.
func (s *schedule) granted(i int, l locks.Lease) {
	w := s.all[i]
	var beside []locks.Claim
	taken := map[int]int{}
	for j, o := range s.all {
		late := o.stalls && o.lease != nil && now() >= o.lease.Term().End()
		if !o.inside || late {
			if o.lease != nil && l.Grant().Fence <= o.lease.Grant().Fence && !locks.Admits([]locks.Claim{o.claim}, w.claim) {
				s.wrong("%d has fence %d after %d of %d, which is gone", i, l.Grant().Fence, o.lease.Grant().Fence, j)
			}
			// An actor that had its place before the slot came free goes first.
			first := o.claim.Priority > w.claim.Priority || (o.claim.Priority == w.claim.Priority && o.queued < w.came)
			if o.queued != 0 && o.queued < s.freed && o.lease == nil && !o.done && !o.stalls && j != i && first {
				s.wrong("%d has overtaken %d", i, j)
			}
			continue
		}
		beside = append(beside, o.claim)
		for _, slot := range o.lease.Grant().Slots {
			taken[slot]++
		}
	}
	if !locks.Admits(beside, w.claim) {
		s.wrong("%d holds beside %d others", i, len(beside))
	}
	for _, slot := range l.Grant().Slots {
		if taken[slot] > 0 || slot >= w.claim.Max {
			s.wrong("slot %d is not for %d", slot, i)
		}
	}
	w.inside, w.lease = true, l
}

// run follows one schedule to its end.
func (s *schedule) run(t *testing.T, url string) {
	began := time.Now()
	for i, w := range s.all {
		w.store, w.gate = open(url), make(chan struct{})
		w.store.SetClock("virtual", now)
		w.store.SetProcess(s.process)
		w.store.Keep(2)
		go s.live(t, i)
	}
	last := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		s.mu.Unlock()
		synctest.Wait()
		s.mu.Lock()
		var ready []int // actors that could go on; the one that went last first
		left := 0
		for i, w := range s.all {
			if !w.done {
				left++
			}
			come, others := false, false
			for _, o := range s.all[:i] {
				come, others = come || o.queued != 0, others || (!o.done && !o.stalls)
			}
			if w.step == "" || (w.stalls && !s.allDone(w)) || (w.late && w.step == "come" && others && !come) {
				continue
			}
			if ready = append(ready, i); i == last {
				ready[0], ready[len(ready)-1] = i, ready[0]
			}
		}
		switch {
		case left == 0 && len(ready) == 0: // what was given up goes on alone
			return
		case len(ready) == 0 && time.Since(began) > 4*stallTTL:
			panic("nobody goes on:\n  " + strings.Join(s.story, "\n  "))
		case len(ready) == 0:
			s.mu.Unlock()
			time.Sleep(time.Millisecond)
			s.mu.Lock()
			continue
		}
		if w := s.all[ready[0]]; s.stalls > 0 && s.problem == "" && w.step != "come" && !s.allDone(w) && s.Pick(2) == 1 {
			s.stalls--
			w.stalls = true
			s.tell(ready[0], "is held up before "+w.step)
			continue
		}
		choice := 0
		if ready[0] != last { // it sleeps, or is done: no switch but a turn
			choice = s.Pick(len(ready))
		} else if s.switches > 0 && s.problem == "" {
			if choice = s.Pick(len(ready)); choice > 0 {
				s.switches--
			}
		}
		last = ready[choice]
		w := s.all[last]
		s.tell(last, w.step)
		w.step = ""
		s.mu.Unlock()
		w.gate <- struct{}{}
		s.mu.Lock()
	}
}

// stallTTL is the TTL of all.
const stallTTL = 3 * time.Second

func now() locks.Instant { return locks.Instant(time.Now().UnixNano()) }

// allDone reports whether w is the last one.
func (s *schedule) allDone(w *actor) bool {
	for _, o := range s.all {
		if o != w && !o.done {
			return false
		}
	}
	return true
}

func TestEverySchedule(t *testing.T) {
	switches := 2
	if text := os.Getenv("LOCKTEST_DEPTH"); text != "" {
		n, err := strconv.Atoi(text)
		testkit.Must(t, err)
		switches += n
	}
	testkit.Each(t, map[string][]actor{
		"three":          make([]actor, 3),
		"one of them -n": {{}, {changes: []locktest.Change{locktest.NoWait}}},
		"two of two":     {{changes: []locktest.Change{locktest.Limit(2)}}, {changes: []locktest.Change{locktest.Limit(2)}}},
		// They exclude each other: their schedules are those of any two.
		"heavy and light": {{changes: []locktest.Change{locktest.Limit(2), locktest.Weight(2)}}, {changes: []locktest.Change{locktest.Limit(2)}}},
		"a high one comes late": {
			{}, {changes: []locktest.Change{locktest.Priority(-1)}}, {late: true}, {changes: []locktest.Change{locktest.Priority(1)}, late: true},
		},
	}, func(t *testing.T, _ string, actors []actor) {
		root, count := memory(t), 0
		tree, process := &locktest.Choices{}, open("mkdir://"+root)
		for more := true; more; more = tree.Next() {
			count++
			dir := filepath.Join(root, strconv.Itoa(count))
			testkit.Must(t, os.Mkdir(dir, 0o700))
			s := &schedule{Choices: tree, switches: switches, stalls: 1, process: process}
			for _, a := range actors {
				s.all = append(s.all, &a)
			}
			if len(s.all) > 3 {
				s.stalls = 0
			}
			if len(s.all) > 2 {
				s.switches--
			}
			synctest.Test(t, func(t *testing.T) { s.run(t, "mkdir://"+dir) })
			if s.problem != "" {
				t.Fatalf("schedule %d: %s\n  %s", count, s.problem, strings.Join(s.story, "\n  "))
			}
			testkit.Must(t, os.RemoveAll(dir))
		}
		t.Logf("%d schedules", count)
	})
}
