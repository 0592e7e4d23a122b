//go:build integration

package campaign_test

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// The part of the judge that is not about exclusion: exit codes, waiting times and the order.

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
		may = append(may, -int(syscall.SIGTERM))
	}
	if marked(interrupt) {
		may = append(may, -int(syscall.SIGINT))
	}
	// On a machine that is held up the guard was seen to be gone where a lost lease
	// was expected: the command is stopped in both cases.
	if marked(killGuard, killBoth, stopThenKill) || h.leased && len(h.hit(r, r.started, r.ended, heldUp)) > 0 {
		may = append(may, faultCode)
	}
	if r.Limit > 0 {
		may = append(may, limitCode)
	}
	if r.Replace != "" || h.mayBeLost(r) {
		may = append(may, lostCode)
	}
	if r.Exec && r.Replace != "" { // it may have become the command, which dies of the signal
		may = append(may, -int(syscall.SIGTERM))
	}
	switch {
	case r.ended == 0 || r.killed:
		return ""
	case c == nil:
		if r.impatient() || r.Replace != "" {
			may = append(may, busyCode)
		}
		refused := slices.Concat(nets, servers, []kind{diskFull, removeFiles, heldUp, serverFlush})
		hit := len(h.hit(r, r.started, r.ended, refused...)) > 0
		away := h.rows && h.outage(r, r.started, r.ended) > 0
		// A server that comes back gives nobody a slot for a while.
		young := len(h.hit(r, r.started-int64(quarantine+time.Second), r.ended, servers...)) > 0
		unanswered := h.leased && r.Wait > 0 && (r.Wait < briefWait || r.queued == 0)
		if hit || away || young || unanswered || !h.leased && h.anyStopped(r.started, r.ended) {
			may = append(may, unavailableCode)
		}
	default:
		if c.bye > 0 {
			may = append(may, c.code)
		}
		if marked(killCommand, killPair) {
			may = append(may, -int(syscall.SIGKILL))
		}
	}
	if slices.Contains(may, r.code) {
		return ""
	}
	return fmt.Sprintf("ended with %d (command: %t), may be %v", r.code, c != nil, may)
}

// mayBeLost reports whether a lease may have been lost: outages of about the
// length that is promised to be harmless.
func (h *history) mayBeLost(r *run) bool {
	if !h.leased {
		return false
	}
	if len(h.hit(r, r.started, r.ended, serverFlush, serverClock)) > 0 {
		return true
	}
	return h.outage(r, r.started-int64(h.TTL), r.ended) >= tolerance(h.TTL)/2
}

// outage is for how long, in all, nothing could be expected of a run.
func (h *history) outage(r *run, from, to moment) (sum time.Duration) {
	for _, f := range h.hit(r, from, to, outages...) {
		sum += f.within(from, to)
	}
	for _, f := range h.faults {
		if h.rows && f.token >= 0 && f.token != r.Token && slices.Contains(standing, f.kind) {
			f.to = max(f.to, f.from+int64(standsStill))
			sum += f.within(from, to)
		}
	}
	return sum
}

func (f *fault) within(from, to moment) time.Duration {
	return max(0, time.Duration(min(f.to, to)-max(f.from, from)))
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
	return l.part == 0 || r.Exec || r.killed || r.Tree || h.lost(r) || h.heirs && !r.Close
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
		if oc := o.command(); oc != nil && o.Hold > 0 && oc.from < c.from {
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
		limit += f.within(from, c.from)
		if f.kind == heldUp { // what takes many steps is held up in each
			limit += 3 * f.within(from, c.from)
		}
		if slices.Contains(servers, f.kind) || f.kind == serverFlush {
			limit += quarantine + handed // an attempt that hangs has to fail first
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
func (h *history) order(all *findings) {
	if !h.queue {
		return
	}
	var served []*run
	for _, r := range h.runs {
		if c := r.command(); c != nil && c.fence <= 0 {
			all.add(badFence, "", "%v has none", r)
		} else if c != nil {
			served = append(served, r)
		}
	}
	clock := ""
	if slices.ContainsFunc(h.faults, func(f fault) bool { return f.kind == serverClock }) {
		clock = notClock
	}
	for _, a := range served {
		for _, b := range served {
			ca, cb := a.command(), b.command()
			switch {
			case a == b:
			case ca.fence == cb.fence, ca.from < b.started && ca.fence >= cb.fence:
				all.add(badFence, clock, "%v has %d, %v, which was started later, %d", a, ca.fence, b, cb.fence)
			case h.overtook(b, a):
				excuse := clock
				if len(h.hit(b, h.begun, cb.from, removeFiles)) > 0 {
					excuse = notRemovedLine
				}
				all.add(inverted, excuse, "%v waited when %v was started, which was served before it", a, b)
			}
		}
	}
}

// overtook reports whether b was served before a, which waited when b was started.
func (h *history) overtook(b, a *run) bool {
	ca, cb := a.command(), b.command()
	if a.queued == 0 || a.queued >= b.started || a.NoWait || ca.fence < cb.fence || a.Priority < b.Priority ||
		a.Replace != "" || b.Replace != "" {
		return false
	}
	// Who is held up as it takes a slot of lease files gets a later fence than who came in meanwhile.
	if h.leased && !h.server && h.room(a, b) {
		return false
	}
	// A waiter that could not say that it is there is taken for gone.
	away := slices.Concat(stops, nets, []kind{suspend, stopGuard, serverFlush, serverMemory})
	return len(h.hit(a, a.started, cb.from, away...)) == 0 &&
		!(h.leased && h.outage(a, a.started, cb.from) >= tolerance(h.TTL)/2)
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
