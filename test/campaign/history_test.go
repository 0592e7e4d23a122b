//go:build integration

package campaign_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// A history is what has happened in one round on one name, as the recorder and the drivers saw it.
// The judge knows nothing else.
//
// All moments are nanoseconds of CLOCK_MONOTONIC. The reader of the clock may be delayed, so each
// moment is read before or after its event, as its comment says: x < y proves an order only where x
// was read after its event and y before.

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

	process *os.Process
	conn    *net.UnixConn
}

type request struct {
	Token      int
	Name       int
	Host       int
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

type run struct {
	request
	flags   []string
	process *os.Process
	started moment // before it was forked
	queued  moment // after it had said that it waits; 0: it has not
	ended   moment // after its end; 0: it lives
	left    []int  // parts that lived when it had ended: the kernel's word
	code    int    // of exit; negative: the signal that it died of
	killed  bool   // died of KILL, which only the campaign sends
	mirrors bool   // its command was killed: it dies of KILL itself, as the last thing that it does
	struck  bool   // the campaign has sent KILL to golock itself
	stuck   bool   // it had not ended when patience had
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

func (r *run) String() string { return fmt.Sprintf("run %d (%s)", r.Token, strings.Join(r.flags, " ")) }

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
	killHost     kind = "kill all golocks and watchdogs of a host"

	diskFull     kind = "disk full"
	removeFiles  kind = "lock files removed"
	serverStop   kind = "server stopped"
	serverKill   kind = "server killed, back with data"
	majorityStop kind = "two of three servers stopped"
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
	netSplit     kind = "network: a host and its server cut off"
	heldUp       kind = "machine held up"
)

// fault is one that happened. Of a process it has a token, of a host's network
// the host; -1: it hit all.
type fault struct {
	kind     kind
	token    int
	host     int
	from, to moment // before it and after it
}

func (f *fault) overlaps(from, to moment) bool { return f.from <= to && f.to >= from }

// tolerance is how long an outage may last without disturbing a command.
func tolerance(ttl time.Duration) time.Duration {
	return ttl*2/3 - ttl/6 - min(ttl/10, time.Second)*3/2
}

type history struct {
	*engine
	TTL    time.Duration
	heirs  bool   // a daemon keeps the slot when it has inherited it
	skewed bool   // the server's wall clock is another
	runs   []*run // by token
	faults []fault
	begun  moment
	free   string // why the lock was not free in the end; "": it was
}

func (h *history) run(token int) *run {
	i := slices.IndexFunc(h.runs, func(r *run) bool { return r.Token == token })
	if i < 0 {
		return nil
	}
	return h.runs[i]
}

// meets reports whether a fault is a run's own, of its host, or of all.
func (f *fault) meets(r *run) bool {
	return (f.token < 0 || f.token == r.Token) && (f.host < 0 || f.host == r.Host)
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

func (h *history) text() string {
	var lines []string
	add := func(at moment, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("%10.4f  ", float64(at-h.begun)/1e9)+fmt.Sprintf(format, args...))
	}
	for _, r := range h.runs {
		add(r.started, "%v starts on host %d", r, r.Host)
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
		add(f.from, "FAULT %s (run %d, host %d) for %v", f.kind, f.token, f.host, time.Duration(f.to-f.from))
	}
	slices.Sort(lines) // the time comes first
	return strings.Join(lines, "\n")
}
