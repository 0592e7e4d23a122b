//go:build integration

package campaign_test

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// This file pins nothing. It is the part of the judge that is not about exclusion:
// exit codes, who waited for how long, and in which order they were served.

// Exit codes of golock's own.
const (
	limitCode       = 124
	unavailableCode = 69
	faultCode       = 70
	busyCode        = 75
	lostCode        = 79
)

// briefWait is a --wait in which a server need not have answered.
const briefWait = time.Second

// code says what is wrong with how a golock ended.
func (h *history) code(r *run) string {
	c := r.command()
	marked := func(kinds ...kind) bool { return h.marked(r, kinds...) }
	var may []int
	if marked(term) {
		may = append(may, 128+int(syscall.SIGTERM))
	}
	if marked(interrupt) {
		may = append(may, 128+int(syscall.SIGINT))
	}
	// On a machine that is held up the guard was seen to be gone where a lost lease
	// was expected: the command is stopped in both cases.
	if marked(killGuard, killBoth, stopThenKill) || h.Leased && len(h.hit(r, r.started, r.ended, heldUp)) > 0 {
		may = append(may, faultCode)
	}
	if r.Limit > 0 {
		may = append(may, limitCode)
	}
	if r.Replace != "" || h.mayBeLost(r) {
		may = append(may, lostCode)
	}
	if r.Exec { // it may have become the command, which dies of the signal
		for sig, came := range map[syscall.Signal]bool{
			syscall.SIGTERM: marked(term) || r.Replace != "", syscall.SIGINT: marked(interrupt),
		} {
			if came {
				may = append(may, -int(sig), 128+int(sig))
			}
		}
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
		hit := len(h.hit(r, r.started, r.ended, refused...)) > 0
		away := h.Rows && h.outage(r, r.started, r.ended) > 0
		// A server that comes back gives nobody a slot for a while.
		young := len(h.hit(r, r.started-int64(h.Quarantine+time.Second), r.ended, servers...)) > 0
		unanswered := h.Leased && r.Wait > 0 && (r.Wait < briefWait || r.queued == 0)
		if hit || away || young || unanswered || !h.Leased && h.anyStopped(r.started, r.ended) {
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

// keeps reports whether a process keeps the slot as long as it lives: a daemon of a
// command that has ended does not.
func (h *history) keeps(r *run, l *life) bool {
	return l.part == 0 || r.Exec || r.killed || r.Tree || h.lost(r) || h.Heirs && !r.Close
}

// gap is for how long a run that was served waited while nothing of the name
// held a slot, outages apart, and how long that may be.
func (h *history) gap(r *run) (gap, limit time.Duration) {
	c := r.command()
	if c == nil {
		return 0, 0
	}
	from := r.started
	limit = handed
	for _, o := range h.runs {
		for _, l := range o.lives {
			switch {
			case o == r, !h.keeps(o, l):
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
			limit += h.Quarantine + handed // an attempt that hangs has to fail first
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
			if h.Late && h.room(a, b) {
				continue
			}
			// A waiter that could not say that it is there is taken for gone.
			away := slices.Concat(stops, nets, []kind{suspend, stopGuard, serverFlush, serverMemory})
			if len(h.hit(a, a.started, cb.from, away...)) > 0 ||
				h.Leased && h.outage(a, a.started, cb.from) >= h.tolerance()/2 {
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

// room reports whether a fitted beside b and all that b saw: b did not make it wait.
func (h *history) room(a, b *run) bool {
	sum := a.Weight + b.Weight
	for _, id := range b.command().saw {
		if id.part == 0 && id.token != a.Token {
			sum += h.run(id.token).Weight
		}
	}
	return sum <= min(limitOf(a), limitOf(b))
}
