//go:build integration

package campaign_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file pins nothing. A history is what has happened in one round on one
// name, as the recorder and the drivers saw it; the judge knows nothing else.
//
// All moments are nanoseconds of CLOCK_MONOTONIC. Whoever reads the clock may be held
// up, so each is read before or after what it is about, as its comment says: x < y
// proves an order only where x was read after and y before.

type moment = int64

// lifeID names a process of a run: the command is part 0, what it has started
// are the parts from 1.
type lifeID struct{ token, part int }

// life is a process of a run. Whom it saw when it began is the kernel's word.
type life struct {
	lifeID
	pid    int
	from   moment // after its first instruction
	looked moment // after it had looked who lives
	to     moment // after its end; 0: alive at the end of the round
	bye    moment // before it ended by itself; 0: it did not
	code   int    // with which code then
	saw    []lifeID
	slots  []int
	fence  int64
}

// request is what a golock is asked for.
type request struct {
	Token      int
	Name       int
	Driver     int
	At         time.Duration // in the round
	Max        int           // 0: --shared
	Weight     int
	Priority   int
	NoWait     bool
	Wait       time.Duration // 0: for ever
	MaxQueue   int           // -1: none
	Replace    string
	Hold       time.Duration
	Limit      time.Duration // --time-limit
	Exec       bool
	Close      bool
	Tree       bool
	Lasts      time.Duration // of the command
	Code       int           // of the command
	Stubborn   bool          // does not care about TERM
	Daemons    []time.Duration
	Children   []time.Duration
	KilledWhen time.Duration // the golock, at that age; 0: never
}

func (r *request) impatient() bool { return r.NoWait || r.Wait > 0 || r.MaxQueue >= 0 }

// run is one golock.
type run struct {
	request
	started moment // before it was forked
	queued  moment // after it had said that it waits; 0: it has not
	ended   moment // after its end; 0: it lives
	left    []int  // parts that lived when it had ended: the kernel's word
	code    int    // of exit; negative: the signal that it died of
	killed  bool   // died of KILL, which only the campaign sends
	said    []string
	lives   []*life
}

func (r *run) command() *life {
	for _, l := range r.lives {
		if l.part == 0 {
			return l
		}
	}
	return nil
}

func (r *run) String() string {
	text := fmt.Sprintf("run %d (max %d, weight %d, priority %d", r.Token, r.Max, r.Weight, r.Priority)
	if r.Replace != "" {
		text += ", replace " + r.Replace
	}
	if r.NoWait {
		text += ", -n"
	}
	if r.Exec {
		text += ", -F"
	}
	if r.Close {
		text += ", -o"
	}
	if r.Tree {
		text += ", --tree"
	}
	return text + ")"
}

// kind is what a fault is.
type kind string

// The faults. Those of processes first.
const (
	killNewcomer kind = "kill golock, newcomer"
	killHolder   kind = "kill golock, holder"
	killWaiter   kind = "kill golock, waiter"
	killEnding   kind = "kill golock, command just ended"
	killCommand  kind = "kill command"
	killPair     kind = "kill golock and command"
	killGuard    kind = "kill watchdog"
	killBoth     kind = "kill golock and watchdog"
	stopHolder   kind = "stop golock, holder"
	stopWaiter   kind = "stop golock, waiter"
	stopCommand  kind = "stop command"
	stopGuard    kind = "stop watchdog"
	stopBoth     kind = "stop golock and watchdog"
	stopTree     kind = "stop golock, watchdog and command"
	stopThenKill kind = "stop golock, kill watchdog"
	killStopped  kind = "stop watchdog, kill golock"
	term         kind = "TERM to golock"
	interrupt    kind = "INT to golock"
	suspend      kind = "TSTP and CONT to a waiter"

	diskFull     kind = "disk full"
	removeFiles  kind = "lock files removed"
	serverStop   kind = "server stopped"
	serverKill   kind = "server killed, back with data"
	serverEmpty  kind = "server killed, back empty"
	serverFlush  kind = "server emptied (FLUSHALL)"
	serverMemory kind = "server without memory"
	serverClock  kind = "server's clock set"
	connections  kind = "connections killed"
	netCut       kind = "network: connections cut"
	netFreeze    kind = "network: nothing gets through"
	netDeaf      kind = "network: answers do not get through"
	netRefuse    kind = "network: no connection"
	netDelay     kind = "network: slow"
	heldUp       kind = "machine held up"
)

// fault is one that happened. Of a process it has a token, of a host's network
// a driver; -1: it hit all.
type fault struct {
	kind     kind
	token    int
	driver   int
	from, to moment // before it and after it; to 0: it lasts
}

func (f *fault) String() string {
	return fmt.Sprintf("%s (run %d, host %d) for %v", f.kind, f.token, f.driver, time.Duration(f.to-f.from))
}

// overlaps reports whether the fault lasted at some time between.
func (f *fault) overlaps(from, to moment) bool {
	return f.from <= to && (f.to == 0 || f.to >= from)
}

// terms are what a store promises, and the times of the round.
type terms struct {
	Leased     bool
	Ordered    bool
	Fenced     bool
	Late       bool // who is held up as it takes a slot gets a later fence than who came in meanwhile
	Slots      bool // also for --shared
	Rows       bool // a step of one that is stopped may hold up the others
	Heirs      bool // a daemon keeps the slot when it has inherited it
	Skewed     bool // the server's wall clock is another
	Mutual     bool // whoever holds excludes: false where removed files let the next one in
	TTL        time.Duration
	Quarantine time.Duration
}

// tolerance is how long an outage may last without disturbing a command.
func (t terms) tolerance() time.Duration {
	return t.TTL*2/3 - t.TTL/6 - min(t.TTL/10, time.Second)*3/2
}

// history is a round on one name.
type history struct {
	terms
	runs   []*run // by token
	faults []fault
	begun  moment
	healed moment // when the last fault was over
	over   moment // when the last golock and the last process had ended, or patience had
	stuck  []int  // tokens of golocks that had not
	free   string // why the lock was not free in the end; "": it was
}

func (h *history) run(token int) *run {
	for _, r := range h.runs {
		if r.Token == token {
			return r
		}
	}
	return nil
}

// meets reports whether a fault is a run's own, of its host, or of all.
func (f *fault) meets(r *run) bool {
	return (f.token < 0 || f.token == r.Token) && (f.driver < 0 || f.driver == r.Driver)
}

// hit gives the faults of some kinds that may have hit a run between.
func (h *history) hit(r *run, from, to moment, kinds ...kind) (list []fault) {
	for _, f := range h.faults {
		if f.meets(r) && slices.Contains(kinds, f.kind) && f.overlaps(from, to) {
			list = append(list, f)
		}
	}
	return list
}

// text is a history for people: what happened, in order.
func (h *history) text() string {
	type line struct {
		at   moment
		text string
	}
	var lines []line
	add := func(at moment, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	for _, r := range h.runs {
		add(r.started, "%v starts on host %d", r, r.Driver)
		if r.queued > 0 {
			add(r.queued, "run %d waits", r.Token)
		}
		if r.ended > 0 {
			add(r.ended, "run %d ends: %d, left %v: %s", r.Token, r.code, r.left, strings.Join(r.said, " | "))
		}
		for _, l := range r.lives {
			add(l.from, "run %d, process %d (pid %d) begins, slots %v, fence %d, sees %v", r.Token, l.part, l.pid, l.slots, l.fence, l.saw)
			if l.bye > 0 {
				add(l.bye, "run %d, process %d says that it ends with %d", r.Token, l.part, l.code)
			}
			if l.to > 0 {
				add(l.to, "run %d, process %d has ended", r.Token, l.part)
			}
		}
	}
	for _, f := range h.faults {
		add(f.from, "FAULT %v", &f)
	}
	add(h.healed, "no more faults")
	slices.SortStableFunc(lines, func(a, b line) int { return int(min(max(a.at-b.at, -1), 1)) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%10.4f  %s\n", float64(l.at-h.begun)/1e9, l.text)
	}
	return b.String()
}
