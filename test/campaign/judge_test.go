//go:build integration

package campaign_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"
)

// The judge of the campaign is a pure function of the history. judged_test.go shows that it finds
// what it looks for.
//
// Whether two were inside together is never read from clocks. A command tells whom it
// saw alive when it began, and a driver what was alive when a golock had ended: both is
// the order of the kernel (testdata/member.c). An excuse holds if its fault may have
// come first. Only what is a promise about time is measured, with bounds that are far
// from what a busy machine needs.

const (
	overlap   = "overlap"        // more inside than the rule allows
	twice     = "ran twice"      // one golock, two commands
	slotTwice = "duplicate slot" // or one that is not there, or too few
	lostSlot  = "lost slot"      // in the end the lock is not free
	starved   = "starvation"     // somebody waits and does not get what is free
	inverted  = "inversion"      // somebody was overtaken
	orphaned  = "orphan"         // something lives that should not
	wrongCode = "wrong code"
	badFence  = "fence" // one that does not grow
)

// finding is something that was seen and must not be: a violation, unless it
// belongs to what is not promised.
type finding struct {
	kind   string
	excuse string // what is not promised; "": a violation
	text   string
}

type findings []finding

func (all *findings) add(kind, excuse, format string, args ...any) {
	*all = append(*all, finding{kind, excuse, fmt.Sprintf(format, args...)})
}

// Bounds in time.
const (
	// soon is for a kill "within a second". What is left lives on for twice as long.
	soon = 10 * time.Second
	// handed is for a slot that is free and waited for, which takes milliseconds.
	handed = 10 * time.Second
	// holdSlop is for fences, which tell when slots were granted, and are numbers, too: the
	// next one is higher in any case.
	holdSlop = 100 * time.Millisecond
	// nearStall is how long before a look a stall may have made a kill come late.
	nearStall = 300 * time.Millisecond
)

// What is not promised, in the words of the documents.
const (
	notClosed      = "kill -9 of a golock with --close: its command goes on without the slot"
	notBoth        = "golock and its watchdog killed in the same moment: what the command has started goes on"
	notBothStop    = "golock and its watchdog stopped (or one stopped, one killed) in the same moment: nobody is left to end the command"
	notRemoved     = "a lock file that is removed while it is held"
	notRemovedLine = "the order of a line whose lock file is removed, and who was replaced in it (TERM instead of 75)"
	notFlushed     = "FLUSHALL: two may run for up to a third of the TTL and the kill window"
	notVanished    = "a server that comes back empty while a holder is cut off, with a quarantine shorter than the TTL"
	notOldLeader   = "a leader of etcd before 3.4.31 or 3.5.13 goes on after it stood still: it may revoke leases"
	notClock       = "a step of the server's clock"
	notHeldUp      = "a machine that is held up"
	notHold        = "a --hold whose data is lost after the command has ended"
)

var (
	stops    = []kind{stopHolder, stopWaiter, stopBoth, stopTree, stopThenKill}
	standing = slices.Concat(stops, []kind{stopGuard, killStopped})
	nets     = []kind{netCut, netFreeze, netDeaf, netRefuse, netDelay, netSplit}
	servers  = []kind{serverStop, serverKill, majorityStop, serverEmpty, serverMemory, serverClock, connections, netSplit}
	outages  = slices.Concat(stops, nets, servers, []kind{heldUp})
	losses   = []kind{serverEmpty, serverFlush, removeFiles}
)

func judge(h *history) (all findings) {
	for _, r := range h.runs {
		h.admission(r, &all)
		h.orphans(r, &all)
		if text := h.code(r); text != "" {
			excuse := ""
			told := r.code == -int(syscall.SIGTERM) && r.command() == nil
			if !h.leased && r.Replace != "" && told && len(h.hit(r, h.begun, r.ended, removeFiles)) > 0 {
				excuse = notRemovedLine
			}
			all.add(wrongCode, excuse, "%v: %s: %q", r, text, r.said)
		}
		if gap, limit := h.gap(r); gap > limit {
			all.add(starved, "", "%v waited %v while nobody held, at most %v expected", r, gap, limit)
		}
		if r.stuck {
			all.add(starved, "", "%v has not ended, %v after the last fault", r, patience)
		}
	}
	h.order(&all)
	if h.free != "" {
		all.add(lostSlot, "", "%s", h.free)
	}
	return all
}

// admission judges the moment in which a run's command looked whom it is with.
func (h *history) admission(r *run, all *findings) {
	c := r.command()
	if c == nil {
		return
	}
	for _, l := range r.lives {
		if l.part == 0 && l != c {
			all.add(twice, "", "%v: pids %d and %d", r, c.pid, l.pid)
		}
	}
	h.slots(r, c, all)
	excuseOfRun := h.excuse(r, []lifeID{c.lifeID}, c) // the run may have lost its slot before it looked
	inside, strict := []*run{r}, []*run{r}            // strict: without those that are excused
	why := ""
	for _, o := range h.runs {
		saw := slices.DeleteFunc(slices.Clone(c.saw), func(id lifeID) bool { return id.token != o.Token })
		holds, forgotten := h.holds(o, saw), ""
		if o == r || !holds && !h.stays(o, c) {
			continue
		}
		if !holds && len(h.hit(o, o.started, c.looked, losses...)) > 0 {
			forgotten = notHold
		}
		excuse := cmp.Or(excuseOfRun, forgotten)
		if excuse == "" {
			excuse = h.excuse(o, saw, c)
		}
		inside = append(inside, o)
		if excuse == "" {
			strict = append(strict, o)
		} else {
			why = excuse
		}
		for _, s := range c.slots {
			if slices.Contains(o.command().slots, s) {
				all.add(slotTwice, excuse, "%v and %v both have slot %d", r, o, s)
			}
		}
	}
	if tooMany(strict) {
		why = ""
	}
	if tooMany(inside) {
		all.add(overlap, why, "%v began with %v inside", r, inside[1:])
	}
}

func tooMany(inside []*run) bool {
	sum, most := 0, math.MaxInt
	for _, r := range inside {
		sum, most = sum+r.Weight, min(most, limitOf(r))
	}
	return sum > most
}

// holds reports whether a run must still have its slot where these of its processes
// were seen alive.
func (h *history) holds(r *run, saw []lifeID) bool {
	c := r.command()
	switch {
	case c == nil || len(saw) == 0:
		return false
	case slices.Contains(saw, c.lifeID), r.Exec:
		return true
	case r.killed:
		return h.outlived(r)
	}
	return r.Tree || h.lost(r)
}

// outlived reports whether the command was alive when its golock was killed. Then golock has not
// released the slot, because it does so only after it has seen the end of the command. Either a driver
// saw the command alive, or only the guard can have ended it.
func (h *history) outlived(r *run) bool {
	if c := r.command(); slices.Contains(r.left, 0) || c.bye > 0 {
		return slices.Contains(r.left, 0)
	}
	return r.Limit == 0 && r.Replace == "" && !h.marked(r, killCommand, killPair, term, interrupt)
}

// lost reports whether golock has ended the command with all that descends from it.
func (h *history) lost(r *run) bool {
	c := r.command()
	return h.leased && (r.code == lostCode || r.code == faultCode) && c != nil && c.bye == 0
}

// stays reports whether a run's --hold kept its slot when another was granted one. Both fences are of one
// clock, the store's. Where they are no times the hold began after the run was started, and the other grant
// came before its command looked.
func (h *history) stays(r *run, next *life) bool {
	c := r.command()
	if c == nil || r.Hold == 0 || r.Replace != "" || h.skewed {
		return false
	}
	after := time.Duration(next.fence-c.fence) * time.Microsecond
	if h.revisions {
		after = time.Duration(next.looked - r.started)
		if next.fence < c.fence {
			return false
		}
	}
	return after > 0 && after < r.Hold-holdSlop
}

// marked reports whether a run was hit by one of some faults of processes.
func (h *history) marked(r *run, kinds ...kind) bool {
	return slices.ContainsFunc(h.faults, func(f fault) bool {
		return f.token == r.Token && slices.Contains(kinds, f.kind)
	})
}

// excuse says why a run, of which some processes were seen alive by a command that
// began, may have been without a slot.
func (h *history) excuse(r *run, saw []lifeID, by *life) string {
	if r.Close && r.killed {
		return notClosed
	}
	for _, f := range h.faults {
		if !f.meets(r) || by.looked < f.from || f.to < r.started && f.kind != serverClock {
			continue // it came after the look, or was over before
		}
		switch f.kind {
		case serverClock:
			return notClock
		case serverStop, majorityStop: // golock is told when the lease has gone
			if h.oldLeaders && by.looked-f.to < int64(soon) && r.code == lostCode {
				return notOldLeader
			}
		case stopBoth, stopTree, killStopped:
			return notBothStop
		case killBoth, stopThenKill:
			if !slices.Contains(saw, lifeID{r.Token, 0}) { // the command itself must be dead
				return notBoth
			}
		case stopGuard: // together with a fault of the holder it comes to one of those above
			if len(h.hit(r, f.from, f.to, stopHolder, killHolder, killPair, killEnding)) > 0 {
				return notBothStop
			}
		case stopHolder: // together with killGuard it comes to one of those above
			if !slices.Contains(saw, lifeID{r.Token, 0}) && len(h.hit(r, f.from, f.to, killGuard)) > 0 {
				return notBoth
			}
		case removeFiles:
			if !h.queue {
				return notRemoved
			}
		case serverFlush:
			if by.looked-f.to < int64(h.TTL+soon) {
				return notFlushed
			}
		case serverEmpty:
			if h.TTL > quarantine && len(h.hit(r, f.from, f.to+int64(quarantine), slices.Concat(stops, nets)...)) > 0 {
				return notVanished
			}
		case heldUp: // a kill at the deadline has 1 % of the TTL
			ran := r.code == lostCode || r.code == faultCode || r.killed
			if h.leased && ran && f.to >= by.from-int64(nearStall) {
				return notHeldUp
			}
		}
	}
	return ""
}

func limitOf(r *run) int {
	if r.Max == 0 {
		return math.MaxInt
	}
	return r.Max
}

func (h *history) slots(r *run, c *life, all *findings) {
	if len(c.slots) == 0 && r.Max == 0 && !h.queue {
		return
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(c.slots)))
	if len(c.slots) != r.Weight || len(distinct) != r.Weight || distinct[0] < 0 || distinct[r.Weight-1] >= limitOf(r) {
		all.add(slotTwice, "", "%v has slots %v, its weight is %d", r, c.slots, r.Weight)
	}
}

// mustEnd reports whether a process must not outlive its golock.
func (h *history) mustEnd(r *run, l *life) bool {
	switch {
	case r.command() == nil || r.ended == 0 || r.Exec:
		return false
	case !r.killed:
		return l.part == 0 || r.Tree || h.lost(r)
	case !h.leased || !h.outlived(r):
		return false
	}
	return l.part == 0 || !h.marked(r, killBoth, stopThenKill, killGuard, killStopped)
}

func (h *history) orphans(r *run, all *findings) {
	until := r.ended + int64(soon)
	for _, f := range h.hit(r, r.started, until, stopBoth, stopTree, stopGuard, killStopped) {
		until = max(until, f.to+int64(soon)) // nobody was there to kill it
	}
	for _, l := range r.lives {
		switch {
		case !h.mustEnd(r, l):
		case !r.killed:
			if slices.Contains(r.left, l.part) {
				all.add(orphaned, "", "%v: process %d was alive when its golock had ended", r, l.part)
			}
		case l.to == 0 || l.to > until:
			all.add(orphaned, "", "%v: process %d lived on for more than %v after kill -9 of its golock", r, l.part, soon)
		}
	}
}
