//go:build integration

package campaign_test

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"
)

// This file pins nothing. It is the judge of the campaign: a pure function of
// what was seen. judged_test.go shows that it finds what it looks for.
//
// Whether two were inside together is never read from clocks. A command tells whom it
// saw alive when it began, and a driver what was alive when a golock had ended: both is
// the order of the kernel (testdata/member.c). An excuse holds if its fault may have
// come first. Only what is a promise about time is measured, with bounds that are far
// from what a busy machine needs.

// The ways in which a promise can be broken.
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
	kind, text string
	excuse     string // what is not promised; "": a violation
}

// Bounds in time.
const (
	// soon is for a kill "within a second". What is left lives on for twice as long.
	soon = 10 * time.Second
	// handed is for a slot that is free and waited for, which takes milliseconds.
	handed = 5 * time.Second
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
	notRemovedLine = "the order of a line whose lock file is removed, and who was replaced in it (143 instead of 75)"
	notFlushed     = "FLUSHALL: two may run for up to a third of the TTL and the kill window"
	notVanished    = "a server that comes back empty while a holder is cut off, with a quarantine shorter than the TTL"
	notClock       = "a step of the server's clock"
	notHeldUp      = "a machine that is held up"
	notHold        = "a --hold whose data is lost after the command has ended"
)

var (
	stops    = []kind{stopHolder, stopWaiter, stopBoth, stopTree, stopThenKill}
	standing = slices.Concat(stops, []kind{stopGuard, killStopped})
	nets     = []kind{netCut, netFreeze, netDeaf, netRefuse, netDelay}
	servers  = []kind{serverStop, serverKill, serverEmpty, serverMemory, serverClock, connections}
	outages  = slices.Concat(stops, nets, servers, []kind{heldUp})
	losses   = []kind{serverEmpty, serverFlush, removeFiles}
)

// judge gives all that is wrong with a history.
func judge(h *history) []finding {
	var all []finding
	for _, r := range h.runs {
		all = append(all, h.admission(r)...)
		all = append(all, h.orphans(r)...)
		if text := h.code(r); text != "" {
			f := finding{kind: wrongCode, text: fmt.Sprintf("%v: %s: %q", r, text, r.said)}
			told := r.code == 128+int(syscall.SIGTERM) && r.command() == nil
			if !h.Leased && r.Replace != "" && told && len(h.hit(r, h.begun, r.ended, removeFiles)) > 0 {
				f.excuse = notRemovedLine
			}
			all = append(all, f)
		}
		if gap, limit := h.gap(r); gap > limit {
			text := fmt.Sprintf("%v waited %v while nobody held, at most %v expected", r, gap, limit)
			all = append(all, finding{kind: starved, text: text})
		}
	}
	all = append(all, h.order()...)
	for _, token := range h.stuck {
		after := time.Duration(h.over - h.healed)
		text := fmt.Sprintf("%v has not ended, %v after the last fault", h.run(token), after)
		all = append(all, finding{kind: starved, text: text})
	}
	if h.free != "" {
		all = append(all, finding{kind: lostSlot, text: h.free})
	}
	return all
}

// admission judges the moment in which a run's command looked whom it is with.
func (h *history) admission(r *run) (all []finding) {
	c := r.command()
	if c == nil {
		return nil
	}
	for _, l := range r.lives {
		if l.part == 0 && l != c {
			text := fmt.Sprintf("%v: pids %d and %d", r, c.pid, l.pid)
			all = append(all, finding{kind: twice, text: text})
		}
	}
	all = append(all, h.slots(r, c)...)
	sum, most := r.Weight, limitOf(r)
	strictSum, strictMost := sum, most // without those that are excused
	var inside []string
	own := h.excuse(r, []lifeID{c.lifeID}, c) // it may have lost its slot before it looked
	why := ""
	for _, o := range h.runs {
		var saw []lifeID
		for _, id := range c.saw {
			if id.token == o.Token {
				saw = append(saw, id)
			}
		}
		excuse := ""
		switch {
		case o == r:
			continue
		case h.holds(o, saw):
			excuse = h.excuse(o, saw, c)
		case h.stays(o, c):
			if excuse = h.excuse(o, saw, c); len(h.hit(o, o.started, c.looked, losses...)) > 0 {
				excuse = notHold
			}
		default:
			continue
		}
		if own != "" {
			excuse = own
		}
		inside = append(inside, o.String())
		sum, most = sum+o.Weight, min(most, limitOf(o))
		if excuse == "" {
			strictSum, strictMost = strictSum+o.Weight, min(strictMost, limitOf(o))
		} else {
			why = excuse
		}
		for _, s := range c.slots {
			if slices.Contains(o.command().slots, s) {
				text := fmt.Sprintf("%v and %v both have slot %d", r, o, s)
				all = append(all, finding{slotTwice, text, excuse})
			}
		}
	}
	if sum > most {
		if strictSum > strictMost {
			why = ""
		}
		text := fmt.Sprintf("%v began with %v inside: %d units of %d", r, inside, sum, most)
		all = append(all, finding{overlap, text, why})
	}
	return all
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

// outlived reports whether the command of a golock that was killed was alive then: so
// golock has not given the slot back, which it does when it has seen that end. A driver
// saw it, or nobody but the guard can have ended the command.
func (h *history) outlived(r *run) bool {
	if c := r.command(); slices.Contains(r.left, 0) || c.bye > 0 {
		return slices.Contains(r.left, 0)
	}
	return r.Limit == 0 && r.Replace == "" && !h.marked(r, killCommand, killPair, term, interrupt)
}

// lost reports whether golock has ended the command with all that descends from it.
func (h *history) lost(r *run) bool {
	c := r.command()
	return h.Leased && (r.code == lostCode || r.code == faultCode) && c != nil && c.bye == 0
}

// stays reports whether a run's --hold kept its slot when another was granted one.
// Both fences are of one clock, the store's.
func (h *history) stays(r *run, next *life) bool {
	c := r.command()
	if c == nil || r.Hold == 0 || r.Replace != "" || h.Skewed {
		return false
	}
	after := time.Duration(next.fence-c.fence) * time.Microsecond
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
		if !f.meets(r) || by.looked < f.from { // it came after the look
			continue
		}
		if f.kind == serverClock {
			return notClock
		}
		if f.to != 0 && f.to < r.started { // it was over before
			continue
		}
		switch f.kind {
		case stopBoth, stopTree, killStopped:
			return notBothStop
		case killBoth, stopThenKill:
			if !slices.Contains(saw, lifeID{r.Token, 0}) { // the command itself must be dead
				return notBoth
			}
		case removeFiles:
			if !h.Mutual {
				return notRemoved
			}
		case serverFlush:
			if by.looked-f.to < int64(h.TTL+soon) {
				return notFlushed
			}
		case serverEmpty:
			cutOff := slices.Concat(stops, nets)
			if h.TTL > h.Quarantine && len(h.hit(r, f.from, f.to+int64(h.Quarantine), cutOff...)) > 0 {
				return notVanished
			}
		case heldUp: // a kill at the deadline has 1 % of the TTL
			ran := r.code == lostCode || r.code == faultCode || r.killed
			if h.Leased && ran && f.to >= by.from-int64(nearStall) {
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

// slots judges the numbers that a command was given.
func (h *history) slots(r *run, c *life) (all []finding) {
	if len(c.slots) == 0 && r.Max == 0 && !h.Slots {
		return nil
	}
	seen, wrong := map[int]bool{}, len(c.slots) != r.Weight
	for _, s := range c.slots {
		wrong = wrong || s < 0 || s >= limitOf(r) || seen[s]
		seen[s] = true
	}
	if wrong {
		text := fmt.Sprintf("%v has slots %v, its weight is %d", r, c.slots, r.Weight)
		all = append(all, finding{kind: slotTwice, text: text})
	}
	return all
}

// mustEnd reports whether a process must not outlive its golock.
func (h *history) mustEnd(r *run, l *life) bool {
	switch {
	case r.command() == nil || r.ended == 0 || r.Exec:
		return false
	case !r.killed:
		return l.part == 0 || r.Tree || h.lost(r)
	case !h.Leased || !h.outlived(r):
		return false
	}
	return l.part == 0 || !h.marked(r, killBoth, stopThenKill, killGuard, killStopped)
}

// orphans judges what was alive when it should not be.
func (h *history) orphans(r *run) (all []finding) {
	for _, l := range r.lives {
		text := ""
		switch {
		case !h.mustEnd(r, l):
		case !r.killed:
			if slices.Contains(r.left, l.part) {
				text = "was alive when its golock had ended"
			}
		default:
			until := r.ended + int64(soon)
			for _, f := range h.hit(r, r.started, until, stopBoth, stopTree, killStopped) {
				until = max(until, f.to+int64(soon)) // nobody was there to kill it
			}
			if l.to == 0 || l.to > until {
				text = fmt.Sprintf("lived on for more than %v after kill -9 of its golock", soon)
			}
		}
		if text != "" {
			text = fmt.Sprintf("%v: process %d %s", r, l.part, text)
			all = append(all, finding{kind: orphaned, text: text})
		}
	}
	return all
}
