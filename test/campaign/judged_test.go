//go:build integration

package campaign_test

import (
	"slices"
	"testing"
	"time"
)

// Tests of the judge: it finds each kind of violation in a bad history, and excuses what is not promised
// only where that is the reason. One that complains for no reason fails TestCampaign.

const (
	ms = moment(time.Millisecond)
	s1 = moment(time.Second)
)

// good is a leased store where run 0 holds from 10 to 100 ms, run 1 waits from
// 20 ms and holds from 110 to 200 ms, run 2 was refused.
func good() *history {
	h := &history{engine: &engine{leased: true, queue: true, server: true}, TTL: 2 * time.Second}
	for i := range 3 {
		h.runs = append(h.runs, &run{request: request{Token: i, Max: 1, Weight: 1, MaxQueue: -1}, started: moment(i+1) * 5 * ms})
	}
	h.runs[0].served(10*ms, 100*ms, 7)
	h.runs[1].queued = 20 * ms
	h.runs[1].served(110*ms, 200*ms, 9)
	h.runs[2].NoWait, h.runs[2].ended, h.runs[2].code = true, 30*ms, busyCode
	return h
}

func (r *run) served(from, to moment, fence int64) {
	r.lives = []*life{{lifeID: lifeID{r.Token, 0}, from: from, looked: from + ms, bye: to - ms, to: to, slots: []int{0}, fence: fence}}
	r.ended = to + ms
}

// third makes run 2 one that was served: from 300 to 400 ms.
func third(h *history) *run {
	r := h.runs[2]
	r.NoWait, r.code = false, 0
	r.served(300*ms, 400*ms, 11)
	return r
}

// sees makes run 1's command see a process of another one when it begins.
func (h *history) sees(token, part int) { h.runs[1].lives[0].saw = []lifeID{{token, part}} }

// daemon gives a run a process beside its command.
func (h *history) daemon(token int, from, to moment) {
	h.runs[token].lives = append(h.runs[token].lives, &life{lifeID: lifeID{token, 1}, from: from, to: to})
}

func (h *history) happened(k kind, token int, from, to moment) {
	h.faults = append(h.faults, fault{kind: k, token: token, host: -1, from: from, to: to})
}

func TestJudgeFinds(t *testing.T) {
	refused, served := good(), good()
	third(served)
	for _, h := range []*history{refused, served} {
		if found := judge(h); len(found) > 0 {
			t.Errorf("nothing is wrong with it: %+v\n%s", found, h.text())
		}
	}
	for name, c := range map[string]struct {
		kind string
		make func(h *history)
	}{
		"a weight too much": {overlap, func(h *history) {
			h.runs[0].Max, h.runs[0].Weight, h.runs[0].lives[0].slots = 3, 2, []int{0, 1}
			h.runs[1].Max, h.runs[1].Weight, h.runs[1].lives[0].slots = 3, 2, []int{1, 2}
			h.sees(0, 0)
		}},
		"the smallest max of those inside": {overlap, func(h *history) {
			h.runs[1].Max = 5
			h.runs[1].lives[0].saw, h.runs[1].lives[0].slots = []lifeID{{0, 0}}, []int{1}
		}},
		"a tree": {overlap, func(h *history) {
			h.runs[0].Tree, h.runs[0].ended = true, 120*ms
			h.daemon(0, 20*ms, 119*ms)
			h.sees(0, 1)
		}},
		"a slot that is held for longer": {overlap, func(h *history) { h.runs[0].Hold = 500 * time.Millisecond }},
		"one that ended by itself while the machine was held up": {overlap, func(h *history) {
			h.sees(0, 0)
			h.happened(heldUp, -1, 90*ms, 110*ms)
		}},
		"two commands": {twice, func(h *history) { h.runs[1].lives = append(h.runs[1].lives, &life{lifeID: lifeID{1, 0}, pid: 2}) }},
		"a slot twice": {slotTwice, func(h *history) {
			h.runs[0].Max, h.runs[1].Max = 2, 2
			h.sees(0, 0)
		}},
		"a slot beyond the max":  {slotTwice, func(h *history) { h.runs[1].lives[0].slots = []int{1} }},
		"too few slots":          {slotTwice, func(h *history) { h.runs[1].Max, h.runs[1].Weight = 2, 2 }},
		"no slot for a reader":   {slotTwice, func(h *history) { h.runs[1].Max, h.runs[1].lives[0].slots = 0, nil }},
		"not free":               {lostSlot, func(h *history) { h.free = "run -n: exit status 75" }},
		"one that has not ended": {starved, func(h *history) { h.runs[2].ended, h.runs[2].stuck = 0, true }},
		"nobody inside for long": {starved, func(h *history) { l := h.runs[1].lives[0]; l.from, l.bye, l.to = 19*s1, 19*s1, 19*s1 }},
		"overtaken": {inverted, func(h *history) {
			third(h).started = 30 * ms
			h.runs[2].lives[0].fence = 8
		}},
		"overtaken where a fence may be taken again": {inverted, func(h *history) {
			third(h).started = 30 * ms
			h.runs[2].lives[0].fence, h.server = 8, false
		}},
		"a lower priority first": {inverted, func(h *history) {
			r := third(h)
			r.started, r.lives[0].fence = 30*ms, 8
			h.runs[1].Priority = 3
		}},
		"a command that outlives its golock": {orphaned, func(h *history) { h.runs[1].left = []int{0} }},
		"a daemon after kill -9": {orphaned, func(h *history) {
			h.runs[1].killed, h.runs[1].ended = true, 150*ms
			h.runs[1].lives[0].bye, h.runs[1].lives[0].to = 0, 160*ms
			h.daemon(1, 120*ms, 40*s1)
		}},
		"a daemon of a command that ended after kill -9": {orphaned, func(h *history) {
			h.runs[1].killed, h.runs[1].ended, h.runs[1].left = true, 150*ms, []int{0, 1}
			h.daemon(1, 120*ms, 0)
		}},
		"a tree that is left": {orphaned, func(h *history) {
			h.runs[1].Tree, h.runs[1].left = true, []int{1}
			h.daemon(1, 120*ms, 220*ms)
		}},
		"what a lost slot has left": {orphaned, func(h *history) {
			h.runs[1].code, h.runs[1].lives[0].bye, h.runs[1].left = lostCode, 0, []int{1}
			h.daemon(1, 120*ms, 220*ms)
		}},
		"another code":                  {wrongCode, func(h *history) { h.runs[1].code = 1 }},
		"success without a command":     {wrongCode, func(h *history) { h.runs[2].code = 0 }},
		"refused without being asked":   {wrongCode, func(h *history) { h.runs[2].NoWait = false }},
		"lost without an outage":        {wrongCode, func(h *history) { h.runs[1].code = lostCode }},
		"unreachable without an outage": {wrongCode, func(h *history) { h.runs[2].code = unavailableCode }},
		"a fault of its own":            {wrongCode, func(h *history) { h.runs[1].code = faultCode }},
		"killed by somebody":            {wrongCode, func(h *history) { h.runs[1].code = -11 }},
		"the same fence":                {badFence, func(h *history) { h.runs[1].lives[0].fence = 7 }},
		"a smaller fence":               {badFence, func(h *history) { third(h).started = 250 * ms; h.runs[2].lives[0].fence = 8 }},
		"no fence":                      {badFence, func(h *history) { h.runs[1].lives[0].fence = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.make(h)
			found := judge(h)
			if !slices.ContainsFunc(found, func(f finding) bool { return f.kind == c.kind && f.excuse == "" }) {
				t.Errorf("no %s: %+v\n%s", c.kind, found, h.text())
			}
		})
	}
}

// The same, and a fault for which it is not promised.
func TestJudgeExcuses(t *testing.T) {
	two := func(h *history) {
		h.runs[0].lives[0].to, h.runs[0].lives[0].bye = 300*ms, 0
		h.runs[0].ended, h.runs[0].code = 301*ms, lostCode
		h.sees(0, 0)
	}
	for name, c := range map[string]struct {
		excuse string
		make   func(h *history)
	}{
		notFlushed: {notFlushed, func(h *history) {
			two(h)
			h.happened(serverFlush, -1, 90*ms, 91*ms)
		}},
		notBothStop: {notBothStop, func(h *history) {
			two(h)
			h.TTL = 500 * time.Millisecond
			h.happened(stopBoth, 0, 20*ms, 290*ms)
		}},
		"stopped one after the other": {notBothStop, func(h *history) {
			two(h)
			h.TTL = 500 * time.Millisecond
			h.happened(stopGuard, 0, 15*ms, 90*ms)
			h.happened(stopHolder, 0, 20*ms, 290*ms)
		}},
		"watchdog killed while golock is stopped": {notBoth, func(h *history) {
			two(h)
			h.runs[0].lives[0].to, h.runs[0].code = 60*ms, faultCode
			h.daemon(0, 20*ms, 300*ms)
			h.sees(0, 1)
			h.happened(stopHolder, 0, 20*ms, 290*ms)
			h.happened(killGuard, 0, 50*ms, 51*ms)
		}},
		notRemoved: {notRemoved, func(h *history) {
			two(h)
			h.leased, h.queue, h.runs[0].code = false, false, 0
			h.runs[0].lives[0].bye = 299 * ms
			h.happened(removeFiles, -1, 50*ms, 50*ms)
		}},
		notHeldUp: {notHeldUp, func(h *history) {
			two(h)
			h.TTL = 500 * time.Millisecond
			h.happened(stopHolder, 0, 20*ms, 290*ms)
			h.happened(heldUp, -1, 90*ms, 110*ms)
		}},
		notClosed: {notClosed, func(h *history) {
			two(h)
			h.leased, h.runs[0].Close, h.runs[0].killed, h.runs[0].ended = false, true, true, 80*ms
		}},
		"its own": {notClosed, func(h *history) { // run 1 had lost its slot before its command began
			h.leased = false
			r := h.runs[1]
			r.Close, r.killed, r.ended = true, true, 108*ms
			r.lives[0].from, r.lives[0].saw = 320*ms, []lifeID{{2, 0}}
			r.lives[0].bye, r.lives[0].to = 339*ms, 340*ms
			third(h)
			h.runs[0].Close = false
		}},
		notBoth: {notBoth, func(h *history) {
			r := h.runs[0]
			r.killed, r.ended, r.lives[0].bye, r.lives[0].to = true, 50*ms, 0, 51*ms
			h.daemon(0, 20*ms, 9*s1)
			h.sees(0, 1)
			h.happened(killBoth, 0, 50*ms, 50*ms)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			c.make(h)
			excused := 0
			for _, f := range judge(h) {
				if f.excuse == "" {
					t.Errorf("%+v", f)
				} else if f.excuse == c.excuse {
					excused++
				}
			}
			if excused == 0 {
				t.Error("nothing was found")
			}
			h.faults = nil // and without the reason?
			for _, r := range h.runs {
				r.Close = false
			}
			if !slices.ContainsFunc(judge(h), func(f finding) bool { return f.excuse == "" }) {
				t.Error("excused for no reason")
			}
		})
	}
}
