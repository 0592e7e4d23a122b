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

var breaches = []string{overlap, twice, slotTwice, lostSlot, starved, inverted, orphaned, wrongCode, badFence}

// finding is something that was seen and must not be: a violation, unless it
// belongs to what is not promised.
type finding struct {
	kind, text string
	excuse     string // what is not promised; "": a violation
}

// What the judge grants to a busy machine and to the recorder.
const (
	noticed   = time.Second           // the end of a process that has ended
	busy      = 3 * time.Second       // to do what is to be done at once
	withinOne = time.Second           // contract: dead within a second
	grantSlop = 50 * time.Millisecond // of the time of a grant that a fence tells
)

// What is not promised, in the words of the documents.
const (
	notClosed      = "kill -9 of a golock with --close: its command goes on without the slot"
	notBoth        = "golock and its guard killed in the same moment: what the command has started goes on"
	notBothStop    = "golock and its guard stopped (or one stopped, one killed) in the same moment: nobody is left to end the command"
	notRemoved     = "a lock file that is removed while it is held"
	notRemovedLine = "the order of a line whose lock file is removed, and who was replaced in it (143 instead of 75)"
	notWhy         = "a waiter that is replaced says so (75) if it can find out in 60 ms; else 143, for the TERM that told it"
	notFlushed     = "FLUSHALL: two may run for up to a third of the TTL and the kill window"
	notVanished    = "a server that comes back empty while a holder is cut off, with a quarantine shorter than the TTL"
	notClock       = "a step of the server's clock"
	notHeldUp      = "a machine that is held up"
	notHold        = "a --hold whose data is lost after the command has ended"
)

var (
	kills    = []kind{killNewcomer, killHolder, killWaiter, killEnding, killPair, killBoth, killStopped}
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
			if !h.Leased && r.Replace != "" && r.code == 128+int(syscall.SIGTERM) && r.command() == nil { // it was told by TERM
				if f.excuse = notWhy; len(h.hit(r, h.begun, r.ended, removeFiles)) > 0 {
					f.excuse = notRemovedLine
				}
			}
			all = append(all, f)
		}
		if gap, limit := h.gap(r); gap > limit {
			all = append(all, finding{kind: starved, text: fmt.Sprintf("%v waited %v while nobody held, at most %v expected", r, gap, limit)})
		}
	}
	all = append(all, h.order()...)
	for _, token := range h.stuck {
		all = append(all, finding{kind: starved, text: fmt.Sprintf("%v has not ended, %v after the last fault", h.run(token), time.Duration(h.over-h.healed))})
	}
	if h.free != "" {
		all = append(all, finding{kind: lostSlot, text: h.free})
	}
	return all
}

// granted is when a run was granted its slot: the fence of a store is a clock.
func (h *history) granted(c *life) moment {
	at := c.fence*1000 - h.wall
	if c.fence == 0 || at > c.from || c.from-at > int64(time.Minute) {
		return c.from
	}
	return at
}

// holder reports whether a run has its slot at the moment in which another
// command began that saw some of its processes, and what excuses that.
func (h *history) holder(r *run, saw []*life, at moment) (holds bool, excuse string) {
	c := r.command()
	if c == nil {
		return false, ""
	}
	for _, l := range saw {
		switch {
		case l.part == 0, r.Exec:
			holds = true
		case r.killed:
			// On a leased store the guard has to end it first; on a local one it
			// has the lock open. If the command had ended before, golock may
			// have given the slot back.
			holds = holds || (c.bye == 0 || c.bye > r.ended) && (c.to == 0 || c.to > r.ended)
		case r.Tree:
			holds = holds || r.ended == 0 || r.ended > at
		case h.Leased && (r.code == lostCode || r.code == faultCode):
			holds = holds || c.bye == 0
		}
	}
	if holds {
		return true, h.excuse(r, at)
	}
	if r.Hold > 0 && r.Replace == "" && !h.Skewed && at < h.granted(c)+int64(r.Hold-grantSlop) && at > c.from {
		if len(h.hit(r, c.from, at, losses...)) > 0 {
			return true, notHold
		}
		return true, h.excuse(r, at)
	}
	return false, ""
}

// killedFrom is the first moment at which a run that was killed may have died.
func (h *history) killedFrom(r *run) moment {
	from := r.ended
	for _, f := range h.faults {
		if f.token == r.Token && slices.Contains(kills, f.kind) {
			from = min(from, f.from)
		}
	}
	return from
}

// excuse says why a run may be inside with somebody who began at that moment.
func (h *history) excuse(r *run, at moment) string {
	c := r.command()
	if r.Close && r.killed && h.killedFrom(r) <= at {
		return notClosed
	}
	for _, f := range h.faults {
		mine := (f.token < 0 || f.token == r.Token) && (f.driver < 0 || f.driver == r.Driver) && f.from <= at
		if !mine {
			continue
		}
		switch f.kind {
		case stopBoth, stopTree, killStopped:
			if f.overlaps(at-int64(withinOne+noticed), at) {
				return notBothStop
			}
		case killBoth, stopThenKill:
			if c.to != 0 && c.to <= at { // the command itself must be dead
				return notBoth
			}
		case removeFiles:
			if !h.Mutual && f.from >= r.started {
				return notRemoved
			}
		case serverFlush:
			if f.from >= c.from-int64(h.TTL) && at-f.from < int64(h.TTL) {
				return notFlushed
			}
		case serverClock:
			return notClock
		case serverEmpty:
			if h.TTL > h.Quarantine && len(h.hit(r, f.from, f.to+int64(h.Quarantine), slices.Concat(stops, nets)...)) > 0 {
				return notVanished
			}
		case heldUp:
			if h.Leased && f.overlaps(at-int64(300*time.Millisecond), at) {
				return notHeldUp
			}
		}
	}
	return ""
}

// admission judges the moment in which a run's command began.
func (h *history) admission(r *run) (all []finding) {
	c := r.command()
	if c == nil {
		return nil
	}
	for _, l := range r.lives {
		if l.part == 0 && l != c {
			all = append(all, finding{kind: twice, text: fmt.Sprintf("%v: pids %d and %d", r, c.pid, l.pid)})
		}
	}
	all = append(all, h.slots(r, c)...)
	others := map[*run][]*life{}
	for _, id := range c.saw {
		if l := h.life(id); l != nil && id.token != r.Token {
			others[h.run(id.token)] = append(others[h.run(id.token)], l)
		}
	}
	for _, o := range h.runs {
		if o.Hold > 0 && o != r && others[o] == nil {
			others[o] = nil
		}
	}
	sum, most := r.Weight, limitOf(r)
	strictSum, strictMost := sum, most // without those that are excused
	var inside []string
	own := h.excuse(r, c.from) // it may have lost its slot before it began
	why := ""
	for o, saw := range others {
		holds, excuse := h.holder(o, saw, c.from)
		if !holds {
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
				all = append(all, finding{slotTwice, fmt.Sprintf("%v and %v both have slot %d", r, o, s), excuse})
			}
		}
	}
	if sum > most {
		if strictSum > strictMost {
			why = ""
		}
		slices.Sort(inside)
		all = append(all, finding{overlap, fmt.Sprintf("%v began with %v inside: %d units of %d", r, inside, sum, most), why})
	}
	return all
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
	seen := map[int]bool{}
	for _, s := range c.slots {
		if s < 0 || s >= limitOf(r) || seen[s] {
			all = append(all, finding{kind: slotTwice, text: fmt.Sprintf("%v has slots %v", r, c.slots)})
		}
		seen[s] = true
	}
	if len(c.slots) != r.Weight {
		all = append(all, finding{kind: slotTwice, text: fmt.Sprintf("%v has slots %v, its weight is %d", r, c.slots, r.Weight)})
	}
	return all
}

// orphans judges what was alive when it should not be.
func (h *history) orphans(r *run) (all []finding) {
	c := r.command()
	if c == nil || r.ended == 0 {
		return nil
	}
	late := func(l *life, until moment, what string, excuse string) {
		if l.to == 0 || l.to > until {
			if excuse == "" && len(h.hit(r, r.ended, until, heldUp)) > 0 {
				excuse = notHeldUp
			}
			left := "for ever"
			if l.to != 0 {
				left = "for " + time.Duration(l.to-r.ended).String()
			}
			all = append(all, finding{orphaned, fmt.Sprintf("%v: process %d lived on %s, %s", r, l.part, left, what), excuse})
		}
	}
	ended := c.bye > 0 && c.bye <= r.ended || c.to > 0 && c.to <= r.ended
	for _, l := range r.lives {
		switch {
		case r.killed && h.Leased:
			if ended && l.part > 0 {
				continue // a daemon of a command that had ended
			}
			until, excuse := r.ended+int64(withinOne+noticed), ""
			for _, f := range h.hit(r, r.started, until, stopBoth, stopTree, killStopped, killBoth, stopThenKill, killGuard) {
				switch f.kind {
				case stopBoth, stopTree, killStopped:
					until = max(until, f.to+int64(withinOne+noticed))
				default:
					if l.part > 0 {
						excuse = notBoth
					}
				}
			}
			late(l, until, "after kill -9 of its golock", excuse)
		case r.killed, r.Exec:
		case l.part == 0:
			late(l, r.ended+int64(noticed), "after its golock had ended", "")
		case r.Tree:
			late(l, r.ended+int64(noticed), "after its golock had ended, with --tree", "")
		case h.Leased && (r.code == lostCode || r.code == faultCode) && c.bye == 0:
			late(l, r.ended+int64(noticed), "after the slot was lost", "")
		}
	}
	return all
}

// Exit codes of golock's own.
const (
	limitCode       = 124
	unavailableCode = 69
	faultCode       = 70
	busyCode        = 75
	lostCode        = 79
)

// code says what is wrong with how a golock ended.
func (h *history) code(r *run) string {
	c := r.command()
	marked := func(kinds ...kind) bool {
		for _, f := range h.faults {
			if f.token == r.Token && slices.Contains(kinds, f.kind) {
				return true
			}
		}
		return false
	}
	var may []int
	if marked(term) {
		may = append(may, 128+int(syscall.SIGTERM))
	}
	if marked(interrupt) {
		may = append(may, 128+int(syscall.SIGINT))
	}
	if marked(killGuard, killBoth, stopThenKill) {
		may = append(may, faultCode)
	}
	if r.Limit > 0 && (c == nil || r.Tree || c.bye == 0 || c.bye-c.from > int64(r.Limit-noticed)) {
		may = append(may, limitCode)
	}
	if r.Replace != "" || h.mayBeLost(r) {
		may = append(may, lostCode)
	}
	if r.Exec { // it has become the command
		for i := range may {
			may[i] = -(may[i] - 128)
		}
		may = append(may, 128+int(syscall.SIGTERM), 128+int(syscall.SIGINT))
	}
	switch {
	case r.ended == 0 || r.killed:
		return ""
	case c == nil:
		// Before golock can catch anything a signal ends it as any process.
		if r.queued == 0 && marked(term, interrupt) {
			may = append(may, -int(syscall.SIGTERM), -int(syscall.SIGINT))
		}
		if r.impatient() || r.Replace != "" {
			may = append(may, busyCode)
		}
		refused := slices.Concat(nets, servers, []kind{diskFull, removeFiles, heldUp, serverFlush})
		if len(h.hit(r, r.started, r.ended, refused...)) > 0 || h.Rows && h.outage(r, r.started, r.ended) > 0 || !h.Leased && h.anyStopped(r.started, r.ended) {
			may = append(may, unavailableCode)
		}
		if h.Leased && r.Wait > 0 && r.Wait < withinOne { // no answer in that time
			may = append(may, unavailableCode)
		}
	default:
		if c.bye > 0 {
			may = append(may, c.code)
		}
		if marked(killCommand, killPair) {
			may = append(may, 128+int(syscall.SIGKILL))
		}
	}
	if slices.Contains(may, r.code) {
		return ""
	}
	if c == nil {
		return fmt.Sprintf("ended with %d without a command, may be %v", r.code, may)
	}
	return fmt.Sprintf("ended with %d, may be %v", r.code, may)
}

// mayBeLost reports whether a lease may have been lost: outages of about the
// length that is promised to be harmless.
func (h *history) mayBeLost(r *run) bool {
	if !h.Leased {
		return false
	}
	if len(h.hit(r, r.started, r.ended, serverFlush, serverClock)) > 0 {
		return true
	}
	return h.outage(r, r.started-int64(h.TTL), r.ended) >= h.tolerance()/2
}

// outage is for how long, in all, nothing could be expected of a run.
func (h *history) outage(r *run, from, to moment) (sum time.Duration) {
	add := func(f fault) {
		end := f.to
		if end == 0 || end > to {
			end = to
		}
		sum += max(0, time.Duration(end-max(f.from, from)))
	}
	for _, f := range h.hit(r, from, to, outages...) {
		add(f)
	}
	if h.Rows {
		for _, f := range h.faults {
			if f.token >= 0 && f.token != r.Token && slices.Contains(standing, f.kind) {
				f.to = max(f.to, f.from+int64(standsStill))
				add(f)
			}
		}
	}
	return sum
}

// standsStill is how long a server of SQL lets a client hold up the others in
// the midst of a transaction: documented.
const standsStill = 2 * time.Second

// anyStopped reports whether some golock was stopped, which on a local store
// may hold up the others.
func (h *history) anyStopped(from, to moment) bool {
	return slices.ContainsFunc(h.faults, func(f fault) bool {
		return slices.Contains(stops, f.kind) && f.overlaps(from, to)
	})
}

// gap is for how long a run that was served waited while nothing of the name
// was alive, outages apart, and how long that may be.
func (h *history) gap(r *run) (gap, limit time.Duration) {
	c := r.command()
	if c == nil {
		return 0, 0
	}
	from := r.started
	limit = busy
	for _, o := range h.runs {
		for _, l := range o.lives {
			switch {
			case o == r:
			case l.to != 0 && l.to <= c.from:
				from = max(from, l.to)
			case l.from < c.from:
				return 0, 0 // not alone
			}
		}
	}
	for _, o := range h.runs {
		oc := o.command()
		if oc != nil && o.Hold > 0 && oc.from < c.from {
			from = max(from, min(c.from, oc.from+int64(o.Hold)))
		}
	}
	// A lease may have to end first: of a golock that was killed, perhaps with
	// its guard, perhaps after a grant that nobody else has seen.
	for _, o := range h.runs {
		if o != r && o.started < c.from && o.ended != 0 && o.ended >= from-int64(h.TTL) && (o.killed || o.code == lostCode || o.code == faultCode || o.code < 0) {
			limit += max(h.TTL, time.Second)
		}
	}
	gap = time.Duration(c.from - from)
	for _, f := range h.faults {
		if !f.overlaps(from, c.from) || f.kind == removeFiles {
			continue
		}
		end := f.to
		if end == 0 || end > c.from {
			end = c.from
		}
		limit += time.Duration(end - max(f.from, from))
		if f.kind == heldUp { // what takes many steps is held up in each
			limit += 3 * time.Duration(end-max(f.from, from))
		}
		if slices.Contains(servers, f.kind) || f.kind == serverFlush {
			limit += h.Quarantine + busy // an attempt that hangs has to fail first
		}
		if slices.Contains(nets, f.kind) || slices.Contains(stops, f.kind) {
			limit += h.TTL
		}
	}
	if len(h.hit(r, from-int64(longestStep*time.Second+h.TTL), c.from, serverClock)) > 0 { // back: all lasts longer
		limit += longestStep * time.Second
	}
	return gap, limit
}

// order judges who was served before whom, by the fences, and the fences.
func (h *history) order() (all []finding) {
	if !h.Fenced {
		return nil
	}
	var served []*run
	for _, r := range h.runs {
		if c := r.command(); c != nil {
			if c.fence <= 0 {
				all = append(all, finding{kind: badFence, text: fmt.Sprintf("%v has none", r)})
				continue
			}
			served = append(served, r)
		}
	}
	clock := ""
	removed := slices.IndexFunc(h.faults, func(f fault) bool { return f.kind == removeFiles })
	if slices.ContainsFunc(h.faults, func(f fault) bool { return f.kind == serverClock }) {
		clock = notClock
	}
	for _, a := range served {
		for _, b := range served {
			ca, cb := a.command(), b.command()
			if a == b {
				continue
			}
			if ca.from < b.started && ca.fence >= cb.fence || ca.fence == cb.fence {
				all = append(all, finding{badFence, fmt.Sprintf("%v has %d, %v, which was started later, %d", a, ca.fence, b, cb.fence), clock})
				continue
			}
			if !h.Ordered || a.queued == 0 || a.queued >= b.started || ca.fence < cb.fence || a.Priority < b.Priority || a.Replace != "" || b.Replace != "" {
				continue
			}
			// A waiter that could not say that it is there is taken for gone.
			if len(h.hit(a, a.queued, cb.from, slices.Concat(stops, nets, []kind{suspend, heldUp, stopGuard, serverFlush, serverMemory})...)) > 0 ||
				h.outage(a, a.queued, cb.from) >= h.tolerance()/2 && h.Leased {
				continue
			}
			excuse := clock
			if removed >= 0 && h.faults[removed].from <= cb.from {
				excuse = notRemovedLine
			}
			all = append(all, finding{inverted, fmt.Sprintf("%v waited when %v was started, which was served before it", a, b), excuse})
		}
	}
	return all
}
