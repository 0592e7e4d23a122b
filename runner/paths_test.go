package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/locks/locktest"
	"golock/runner/renewal"
	"golock/signals"
	"golock/test/testkit"
)

// The timing of a lease, along every path up to a depth: all combinations of what happens to each
// renewal, and of what disturbs golock between two of its steps. Renewer, supervisor and the
// watchdog's judgement are the program's own; the store, the command and the clock are played, in
// virtual time.

// travel takes its time, or until ctx ends.
func travel(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fate is what happens to a renewal.
type fate string

const (
	arrives     fate = "arrives"
	requestLost fate = "does not arrive"
	replyLost   fate = "arrives, and its answer is lost"
	refused     fate = "fails at once, the store has not seen it"
	replyLate   fate = "is answered just before golock gives it up"
	requestLate fate = "arrives just before golock gives it up"
	tooLate     fate = "arrives after golock has given it up"
	denied      fate = "is answered: the slot is lost"
)

// disturbance is what happens to golock when it is about to look.
type disturbance string

const (
	none        disturbance = ""
	stalled     disturbance = "golock is stopped, the watchdog is not"
	suspended   disturbance = "the machine is suspended; only CLOCK_BOOTTIME goes on"
	killed      disturbance = "golock is killed"
	commandEnds disturbance = "the command ends"
	hinted      disturbance = "the connection to the store is gone"
)

// bounds are how far the tree is explored.
type bounds struct {
	ttl, killAfter time.Duration
	obeys          bool // the command ends when it gets the stop signal
	fates          []fate
	renewals       int // whose fates are chosen; those that follow all arrive, or none does
	disturbances   []disturbance
	budget         int // of disturbances
	looks          int // of golock's first looks, at which they come
}

// scene is one path.
type scene struct {
	bounds
	*locktest.Choices
	mu       sync.Mutex    // guards what follows; free while anybody sleeps
	offset   time.Duration // of CLOCK_BOOTTIME: how long the machine was suspended
	story    []string
	problem  string
	tail     fate
	answered locks.Term // the last that golock knows of

	// The store.
	expiry locks.Instant
	gone   bool
	asked  int

	// The command.
	alive bool
	died  locks.Instant

	// For the promise about outages.
	sent        []locks.Instant // renewals since the last that went well that do not
	undisturbed bool
	firmly      bool // no fate but those of an outage

	golock bool          // lives
	woke   locks.Instant // when the machine was last suspended until
	events chan struct{}
	s      *supervisor
	w      *watchdogProcess
	woken  chan struct{}
}

// now is a locks.Clock.
func (c *scene) now() locks.Instant { return locks.Instant(time.Now().Add(c.offset).UnixNano()) }

func (c *scene) tell(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf("%8v  ", c.now().Sub(c.began()).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (c *scene) wrong(format string, args ...any) {
	if c.problem == "" {
		c.problem = fmt.Sprintf(format, args...)
		c.tell("WRONG: %s", c.problem)
	}
}

// The command, as the supervisor sees it.
func (c *scene) signal(sig syscall.Signal) {
	if sig == unix.SIGKILL || (sig == unix.SIGTERM && c.obeys) {
		c.die(signals.Name(sig))
	}
}

func (c *scene) die(of string) {
	if c.alive {
		c.alive, c.died = false, c.now()
		c.tell("the command dies of %s", of)
	}
	c.s.pid, c.s.childless = 0, true
}

// sceneLease is the lease in the store that is played.
type sceneLease struct {
	locks.Lease // nil
	term        locks.Term
	c           *scene
}

func (l sceneLease) Term() locks.Term { return l.term }

func (l sceneLease) Events() <-chan struct{} { return l.c.events }

func (l sceneLease) Confirm(ctx context.Context) error {
	_, err := l.Renew(ctx)
	return err
}

func (l sceneLease) Renew(ctx context.Context) (locks.Term, error) {
	c := l.c
	c.mu.Lock()
	term := locks.Term{Asked: c.now(), TTL: c.ttl}
	f := c.tail
	if c.asked < c.renewals {
		f = c.fates[c.Pick(len(c.fates))]
	}
	c.asked++
	c.tell("renewal %d %s", c.asked, f)
	c.firmly = c.firmly && slices.Contains(outage, f)
	if f != arrives {
		c.sent = append(c.sent, term.Asked)
	}
	c.mu.Unlock()
	const trip, early, never = time.Millisecond, 2 * time.Millisecond, time.Hour
	there, back, late := trip, trip, locks.NearRenewalLimit(c.ttl)-early-trip
	switch f {
	case refused:
		return locks.Term{}, errors.New("a fault made by the test")
	case requestLost:
		there = never
	case tooLate:
		there = never
		time.AfterFunc(locks.NearRenewalLimit(c.ttl)+early, func() { _ = c.renewed(f) })
	case replyLost:
		back = never
	case requestLate:
		there = late
	case replyLate:
		back = late
	}
	if err := travel(ctx, there); err != nil {
		return locks.Term{}, err
	}
	lost := c.renewed(f)
	if err := travel(ctx, back); err != nil {
		return locks.Term{}, err
	}
	return term, lost
}

// renewed is the store's part.
func (c *scene) renewed(f fate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == denied || c.gone || c.now() >= c.expiry {
		c.gone = true
		return fmt.Errorf("store: %w", locks.ErrLost)
	}
	c.expiry = c.now().Add(c.ttl)
	return nil
}

func (c *scene) began() locks.Instant { return c.s.lease.(sceneLease).term.Asked }

// lengths are how long golock is stopped, or the machine suspended: to just before and just after
// each moment of the arithmetic.
func (c *scene) lengths() []time.Duration {
	k, now := c.s.renewer, c.now()
	var ds []time.Duration
	for _, at := range []locks.Instant{k.WakeAt(), k.StopAt(), k.KillAt(), k.Term.End(), c.expiry} {
		for _, d := range []time.Duration{-time.Millisecond, time.Millisecond} {
			if d += at.Sub(now); d > 0 {
				ds = append(ds, d)
			}
		}
	}
	return append(ds, locks.NearRenewalLimit(c.ttl)+5*time.Millisecond)
}

// check checks the promises at a moment at which everybody who is awake has done what is due.
func (c *scene) check() {
	if c.alive && c.now() >= c.expiry {
		c.wrong("the command lives, and the store may give the slot away since %v", c.now().Sub(c.expiry))
	}
	if end := c.answered.Asked.Add(c.answered.TTL); c.alive && c.now() >= end {
		c.wrong("the command lives %v after the end of the lease, counted from when the last renewal that went well was sent", c.now().Sub(end))
	}
}

// excuse demands a reason for the end of a command: an outage longer than those that it is promised
// to survive, if nothing else has happened.
func (c *scene) excuse() {
	if !c.undisturbed || !c.firmly {
		return
	}
	length := time.Duration(0)
	if len(c.sent) > 0 {
		length = c.sent[len(c.sent)-1].Sub(c.sent[0])
	}
	if covered := c.ttl*2/3 - min(c.killAfter, c.ttl/6) - min(c.ttl/10, time.Second)*3/2; length < covered {
		c.wrong("ended for an outage of %v; %v do no harm", length, covered)
	}
}

// watchdog does what the watchdog does whenever it wakes up (watchdogProcess.run).
func (c *scene) watchdog() {
	c.w.obey()
	if c.w.mustKill() {
		if c.s.reason.err == nil {
			c.excuse()
		}
		c.die("the watchdog")
		c.w.deadline = 0
	}
}

// look is a round of the supervisor's loop (supervise).
func (c *scene) look() {
	s, before, lost := c.s, c.s.renewer.Term, c.s.reason.err
	s.renewer.Step()
	s.handleRenewal()
	if lost == nil && s.reason.err != nil {
		c.excuse()
	}
	s.onTime()
	c.settle() // a renewal that was begun has been sent
	if s.renewer.Term != before {
		c.answered = s.renewer.Term
		c.sent = slices.DeleteFunc(c.sent, func(at locks.Instant) bool { return at != c.now() })
	}
}

// settle waits until everybody else sleeps.
func (c *scene) settle() {
	c.mu.Unlock()
	synctest.Wait()
	c.mu.Lock()
}

// disturb chooses what happens to golock now. It returns until when golock does nothing.
func (c *scene) disturb(looks int) (until time.Time) {
	if c.budget == 0 || looks >= c.looks || !c.alive {
		return
	}
	d := c.disturbances[c.Pick(len(c.disturbances))]
	if d == none {
		return
	}
	c.budget--
	c.undisturbed = false
	length := time.Duration(0)
	if d == stalled || d == suspended {
		all := c.lengths()
		length = all[c.Pick(len(all))]
	}
	c.tell("%s %v", d, length)
	switch d {
	case stalled:
		return time.Now().Add(length)
	case suspended:
		// Nobody does anything meanwhile; then everybody wakes in some order.
		c.offset += length
		c.woke = c.now()
		if c.Pick(2) == 1 {
			c.look()
		}
		c.watchdog()
	case killed:
		c.golock = false
		unix.Close(c.s.watchdog.socket)
		c.s.watchdog.socket = -1
		c.watchdog()
		if c.alive {
			c.wrong("the command outlives golock")
		}
	case commandEnds:
		c.alive = false
	case hinted:
		c.events <- struct{}{}
	}
	return
}

// begin puts everybody in place. end undoes it.
func (c *scene) begin(t *testing.T, relay *signals.Relay) (end func()) {
	pair, err := socketPair()
	testkit.Must(t, err)
	c.events = make(chan struct{}, 8)
	c.woken = make(chan struct{}, 1)
	c.alive, c.golock, c.undisturbed, c.firmly = true, true, true, true
	lease := sceneLease{term: locks.Term{Asked: c.now(), TTL: c.ttl}, c: c}
	c.answered, c.expiry = lease.term, lease.term.Asked.Add(c.ttl)
	run := &Run{KillAfter: c.killAfter, StopSignal: unix.SIGTERM, Log: func(_ bool, message string, _ ...any) { c.tell("golock: %s", message) }}
	wake := func() {
		select {
		case c.woken <- struct{}{}:
		default:
		}
	}
	c.s = &supervisor{
		Run: run, clock: c.now, signal: c.signal, lease: lease, state: running, pid: 1,
		watchdog: &watchdog{socket: pair[0]},
	}
	c.s.renewer = renewal.New(lease, c.now, c.killAfter, wake, run.Log)
	c.w = &watchdogProcess{relay: relay, clock: c.now, socket: pair[1], deadline: c.s.renewer.KillAt()}
	c.mu.Lock()
	c.tail = []fate{arrives, requestLost}[c.Pick(2)]
	return func() {
		c.mu.Unlock()
		began := time.Now()
		c.s.renewer.Stop()
		if took := time.Since(began); took > leaveLimit {
			c.wrong("the end takes %v", took)
		}
		c.s.watchdog.closeSocket()
		unix.Close(c.w.socket)
	}
}

// play goes along one path to its end.
func (c *scene) play() {
	// Long enough for all fates to be chosen, and for what follows to show.
	horizon := time.Now().Add(time.Duration(c.renewals)*(c.ttl/locks.PerTTL+locks.NearRenewalLimit(c.ttl)) + 4*c.ttl)
	var asleep time.Time // until when golock is stopped
	for looks := 0; c.alive && c.problem == ""; looks++ {
		c.settle()
		c.watchdog()
		if !c.alive {
			break
		}
		if c.golock && !time.Now().Before(asleep) {
			if asleep = c.disturb(looks); !c.alive {
				break
			}
			if asleep.IsZero() {
				c.look()
				c.watchdog() // it hears of it at once
			}
		}
		c.check()
		if looks > 2000 {
			c.wrong("it has no end")
		}
		if !time.Now().Before(horizon) {
			if c.tail == requestLost {
				c.wrong("the command lives although the store has not answered for long")
			}
			return
		}
		c.sleep(time.Until(horizon), time.Until(asleep))
	}
	// A command that was suspended past the end of its lease has done nothing meanwhile and is dead on
	// waking.
	if c.died > c.expiry && c.died != c.woke {
		c.wrong("the command died %v after the end of the store's lease", c.died.Sub(c.expiry))
	}
}

// sleep waits for the next event of the watchdog or golock, at most limit. If golock is stopped it
// has none before that is over.
func (c *scene) sleep(limit, stopped time.Duration) {
	sooner := func(at locks.Instant) {
		if at != 0 {
			limit = min(limit, at.Sub(c.now()))
		}
	}
	sooner(c.w.deadline)
	woken := c.woken
	if stopped > 0 {
		limit, woken = min(limit, stopped), nil
	} else {
		sooner(c.s.wakeAt())
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-time.After(limit):
	case <-woken:
	}
}

// depth makes the tree deeper: more renewals, and more disturbances. With the tag integration it is
// 0.
var depth = -1

// outage are the fates of renewals in an outage.
var outage = []fate{arrives, requestLost, replyLost, refused}

func TestEveryPathOfALease(t *testing.T) {
	if text := os.Getenv("LOCKTEST_DEPTH"); text != "" {
		var err error
		depth, err = strconv.Atoi(text)
		testkit.Must(t, err)
	}
	relay, err := signals.NewRelay(false)
	testkit.Must(t, err)
	late := append(slices.Clone(outage), replyLate, requestLate, tooLate, denied)
	all := []disturbance{none, stalled, suspended, killed, commandEnds, hinted}
	var trees []bounds
	for _, obeys := range []bool{false, true} {
		for _, killAfter := range []time.Duration{0, 10 * time.Second} {
			if depth < 0 && obeys == (killAfter > 0) {
				continue // half of them
			}
			trees = append(trees,
				bounds{ttl: time.Second, killAfter: killAfter, obeys: obeys, fates: outage, renewals: 5 + depth},
				bounds{ttl: 30 * time.Second, killAfter: killAfter, obeys: obeys, fates: late, renewals: 3 + depth},
				bounds{ttl: 30 * time.Second, killAfter: killAfter, obeys: obeys, fates: late, renewals: 1 + max(depth, 0), disturbances: all, budget: 1, looks: 6 + 2*depth},
				bounds{ttl: time.Second, killAfter: killAfter, obeys: obeys, fates: []fate{arrives, replyLost}, renewals: 1 + max(depth, 0)/2, disturbances: []disturbance{none, stalled, suspended, killed}, budget: 2, looks: 4 + depth},
			)
		}
	}
	paths := 0
	for _, b := range trees {
		synctest.Test(t, func(t *testing.T) {
			c := &locktest.Choices{}
			for more := true; more; more = c.Next() {
				s := &scene{bounds: b, Choices: c}
				end := s.begin(t, relay)
				s.play()
				end()
				paths++
				if s.problem != "" {
					t.Errorf("TTL %v, kill after %v, the command obeys %v: %s\n  %s", b.ttl, b.killAfter, b.obeys, s.problem, strings.Join(s.story, "\n  "))
					return
				}
			}
		})
	}
	t.Logf("%d paths", paths)
	if paths < 3000 {
		t.Errorf("only %d paths: the tree was not explored", paths)
	}
}
