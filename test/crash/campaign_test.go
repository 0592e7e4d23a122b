package crash_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file pins exclusion and release when golocks and commands are killed at
// any moment of their lives: as newcomers, in the queue, as holders, alone or
// with the command, and at their end. Nothing remains to be cleaned up.

// kills is how many a campaign makes, unless most of crowdOf golocks end before
// they can be killed: that is a machine with something else to do.
const (
	kills   = 210
	crowdOf = 1000
)

// strategy makes the golocks of a campaign.
type strategy struct {
	name string
	next func(random *rand.Rand) spec
}

var strategies = []strategy{
	{"one at a time", func(*rand.Rand) spec { return spec{max: 1} }},
	{"three", func(random *rand.Rand) spec { return spec{max: 3, weight: 1 + random.IntN(random.IntN(3)+1)} }},
	{"sixteen", func(random *rand.Rand) spec { return spec{max: 16, weight: 1 + random.IntN(random.IntN(16)+1)} }},
	{"readers and writers", func(random *rand.Rand) spec {
		if random.IntN(4) == 0 {
			return spec{max: 1, judge: "x"}
		}
		return spec{max: 0, judge: "s"}
	}},
	{"a changing max", func(random *rand.Rand) spec { return spec{max: []int{2, 5, 0}[random.IntN(3)]} }},
}

func TestKilledAtAnyMoment(t *testing.T) {
	for _, s := range strategies {
		t.Run(s.name, func(t *testing.T) {
			c := newCampaign(t, s)
			for end := c.end(len(strategies) + 1); c.killed() < kills && len(c.procs) < crowdOf || time.Now().Before(end); {
				c.populate(10)
				c.attack()
			}
			c.finish()
		})
	}
}

// run is a campaign on its way.
type run struct {
	*world
	strategy
	random *rand.Rand
	counts map[string]int // kills by kind
	live   []*proc        // not known to have ended
}

func newCampaign(t *testing.T, s strategy) *run { return newCampaignOn(t, newWorld(t), s) }

func newCampaignOn(t *testing.T, w *world, s strategy) *run {
	t.Helper()
	return &run{world: w, strategy: s, random: newRand(t), counts: map[string]int{}}
}

// end is when a campaign ends that has the given part of all the time.
func (c *run) end(parts int) time.Time { return time.Now().Add(campaign / time.Duration(parts)) }

func (c *run) killed() int {
	n := 0
	for _, k := range c.counts {
		n += k
	}
	return n
}

// some is a random time below most.
func (c *run) some(most time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(most)))
}

// pass lets a random time pass, exactly: time.Sleep is too coarse for the first
// milliseconds of a life. Nothing is ordered by it.
func pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if time.Until(end) > 2*time.Millisecond {
			time.Sleep(time.Millisecond)
		}
	}
}

// newcomer is a golock of the campaign's kind; some of them become their
// command, and some do not wait long.
func (c *run) newcomer() spec {
	s := c.next(c.random)
	s.hold = c.some(6 * time.Millisecond)
	switch c.random.IntN(10) {
	case 0:
		if !c.leased {
			s.flags = []string{"-F"}
		}
	case 1:
		limit := 30 * time.Millisecond
		if c.leased { // with room for a connection
			limit += 2 * time.Second
		}
		s.flags = []string{"-w", strconv.FormatFloat((limit - c.some(30*time.Millisecond)).Seconds(), 'f', 6, 64), "-q"}
	}
	return s
}

func (c *run) populate(n int) {
	c.live = slices.DeleteFunc(c.live, (*proc).isDone)
	for len(c.live) < n {
		c.live = append(c.live, c.start(c.newcomer()))
	}
}

// attack kills one golock, its command, or both.
func (c *run) attack() {
	switch c.random.IntN(8) {
	case 0, 1:
		p := c.start(c.newcomer())
		life := 4 * time.Millisecond
		if c.leased {
			life = 30 * time.Millisecond // of which most goes into the connection
		}
		pass(c.some(life))
		c.count("newcomer", p.kill())
	case 2:
		if p := c.holder(); p != nil {
			c.count("golock of a holder", p.kill())
		}
	case 3:
		if p := c.holder(); p != nil {
			if c.random.IntN(2) == 0 {
				c.count("golock and command", p.kill() && c.killCommand(p))
			} else {
				c.count("command and golock", c.killCommand(p) && p.kill())
			}
		}
	case 4:
		if p := c.holder(); p != nil {
			c.count("command", c.killCommand(p))
		}
	case 5:
		if p, place := c.waiter(); p != nil {
			c.count(place, p.kill())
		}
	case 6, 7:
		if p := c.ending(); p != nil {
			pass(c.some(300 * time.Microsecond))
			c.count("golock at its end", p.kill())
		}
	}
}

func (c *run) count(kind string, done bool) {
	if done {
		c.counts[kind]++
	}
}

// holder finds one whose command runs, if there is one.
func (c *run) holder() *proc {
	pass(c.some(2 * time.Millisecond))
	c.mu.Lock()
	defer c.mu.Unlock()
	var holders []*proc
	for _, p := range c.live {
		if p.begins > p.ends && !p.isDone() {
			holders = append(holders, p)
		}
	}
	if holders == nil {
		return nil
	}
	return holders[c.random.IntN(len(holders))]
}

// waiter finds the head of the queue, or one in the middle.
func (c *run) waiter() (*proc, string) {
	c.t.Helper()
	var waiting []int
	for _, e := range c.ls() {
		if e.State == "waiting" {
			waiting = append(waiting, e.PID)
		}
	}
	if waiting == nil {
		return nil, ""
	}
	pid, place := waiting[0], "head of the queue"
	if len(waiting) > 1 && c.random.IntN(2) == 0 {
		pid, place = waiting[1+c.random.IntN(len(waiting)-1)], "waiter"
	}
	for _, p := range c.live {
		if p.process.Pid == pid {
			return p, place
		}
	}
	return nil, ""
}

// ending waits for a command that ends, and gives its golock.
func (c *run) ending() *proc {
	ended := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.ended)
	}
	before := ended()
	within(10*time.Millisecond, func() bool { return ended() > before })
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == before {
		return nil
	}
	return c.ended[before]
}

// finish lets all that live come to their end and looks at what remains.
func (c *run) finish() {
	c.t.Helper()
	c.drain()
	c.check()
	c.nothingLeft()
	var text []string
	for _, kind := range slices.Sorted(maps.Keys(c.counts)) {
		text = append(text, fmt.Sprintf("%s %d", kind, c.counts[kind]))
	}
	c.t.Logf("%d golocks, %d kills: %s", len(c.procs), c.killed(), strings.Join(text, ", "))
}
