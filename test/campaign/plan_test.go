//go:build integration

package campaign_test

import (
	"math/rand/v2"
	"slices"
	"time"
)

// This file pins nothing. A plan is all that is chosen at random for one round,
// from one seed: who asks for what and when, which faults come when. What
// becomes of it depends on the machine, too.

type plan struct {
	Seed     uint64
	Drivers  int
	Ahead    []int64 // seconds that the clocks of the drivers are ahead
	Names    []string
	TTL      time.Duration
	Requests []request
	Faults   []planned
	Outlasts bool // the first request is only for the fault that hits it
}

// planned is a fault to come. Whom of those that are there then it hits is what
// Pick says.
type planned struct {
	Kind  kind
	At    time.Duration
	For   time.Duration
	Pick  int
	First bool          // it hits the first run, whatever Pick says
	After time.Duration // between what has to happen and the fault
}

// pace is how quickly things happen on a store.
type pace struct {
	window time.Duration // in which requests and faults come
	names  int
	each   int           // requests for a name
	lasts  time.Duration // a command, at most, if it is not one of the long ones
	long   time.Duration
	faults int // of processes
	places int // of other things, at most
}

// mix makes the requests for one name.
type mix struct {
	name string
	next func(r *rand.Rand, q *request)
}

var (
	mutex   = mix{"one at a time", func(*rand.Rand, *request) {}}
	three   = mix{"three", func(r *rand.Rand, q *request) { q.Max = 3; q.Weight = 1 + r.IntN(1+r.IntN(3)) }}
	plain3  = mix{"three of weight 1", func(_ *rand.Rand, q *request) { q.Max = 3 }}
	sixteen = mix{"sixteen", func(r *rand.Rand, q *request) { q.Max = 16; q.Weight = 1 + r.IntN(1+r.IntN(16)) }}
	readers = mix{"readers and writers", func(r *rand.Rand, q *request) {
		if r.IntN(4) > 0 {
			q.Max = 0
		}
	}}
	changing = mix{"a changing max", func(r *rand.Rand, q *request) { q.Max = []int{2, 5, 0}[r.IntN(3)] }}
	priority = mix{"priorities", func(r *rand.Rand, q *request) { q.Priority = []int{-3, 0, 0, 7}[r.IntN(4)] }}
	ticks    = mix{"hold", func(r *rand.Rand, q *request) {
		q.Max = 1 + r.IntN(2)
		if r.IntN(2) == 0 {
			q.Hold = time.Duration(50+r.IntN(600)) * time.Millisecond
		}
		q.NoWait = r.IntN(3) > 0
	}}
	newest = mix{"replace", func(r *rand.Rand, q *request) {
		q.Max = 1 + r.IntN(2)
		q.Replace = []string{"", "waiting", "running"}[r.IntN(3)]
	}}
	trees = mix{"trees", func(r *rand.Rand, q *request) { q.Max = 2; q.Tree = r.IntN(3) > 0 }}
)

// newPlan makes the plan of a round on a store.
func newPlan(e *engine, seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 7))
	some := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most) + 1)) }
	p := &plan{Seed: seed, Drivers: 3, TTL: e.ttls[r.IntN(len(e.ttls))]}
	for range p.Drivers {
		ahead := int64(0)
		if e.clocks && r.IntN(2) == 0 {
			ahead = r.Int64N(1e6)
		}
		p.Ahead = append(p.Ahead, ahead)
	}
	first := r.IntN(len(e.mixes))
	for i := range e.pace.names {
		m := e.mixes[(first+i)%len(e.mixes)]
		p.Names = append(p.Names, m.name)
		var bunch time.Duration
		for range e.pace.each {
			q := request{Name: i, Driver: r.IntN(p.Drivers), Max: 1, Weight: 1, MaxQueue: -1}
			if r.IntN(3) > 0 { // the others come at the same time as the one before
				bunch = some(e.pace.window)
			}
			q.At, q.Lasts = bunch, some(e.pace.lasts)
			if r.IntN(10) == 0 {
				q.Lasts = some(e.pace.long)
			}
			m.next(r, &q)
			e.vary(r, &q)
			p.Requests = append(p.Requests, q)
		}
	}
	if p.Outlasts = e.leased && r.IntN(2) == 0; p.Outlasts { // a command would outlast the lease of its golock, which is stopped
		q := request{Max: 1, Weight: 1, MaxQueue: -1, At: -1, Lasts: 3 * p.TTL}
		q.Stubborn = r.IntN(2) == 0
		p.Requests = append(p.Requests, q)
		f := planned{Kind: stopHolder, First: true, At: p.TTL / 8, For: 2 * p.TTL}
		p.Faults = append(p.Faults, f)
	}
	slices.SortStableFunc(p.Requests, func(a, b request) int { return int(a.At - b.At) })
	for i := range p.Requests {
		p.Requests[i].Token = i
	}
	for range e.pace.faults {
		f := planned{Kind: e.faults[r.IntN(len(e.faults))], At: some(e.pace.window * 5 / 4), Pick: r.IntN(1 << 20)}
		f.After = some(400 * time.Microsecond)
		f.For = length(r, e, p.TTL)
		p.Faults = append(p.Faults, f)
	}
	if len(e.places) > 0 {
		kinds := e.places
		if len(e.beyond) > 0 && r.IntN(8) == 0 {
			kinds = append(slices.Clone(kinds), e.beyond...)
			p.Faults = append(p.Faults, planned{Kind: e.beyond[r.IntN(len(e.beyond))], At: some(e.pace.window), Pick: r.IntN(1 << 20)})
		}
		for range r.IntN(e.pace.places + 1) {
			f := planned{Kind: kinds[r.IntN(len(kinds))], At: some(e.pace.window), Pick: r.IntN(1 << 20)}
			f.For = length(r, e, p.TTL)
			p.Faults = append(p.Faults, f)
		}
	} else if len(e.beyond) > 0 && r.IntN(4) == 0 {
		p.Faults = append(p.Faults, planned{Kind: e.beyond[r.IntN(len(e.beyond))], At: some(e.pace.window), Pick: r.IntN(1 << 20)})
	}
	slices.SortStableFunc(p.Faults, func(a, b planned) int { return int(a.At - b.At) })
	return p
}

// length is for how long a fault lasts: most are shorter than what a lease
// bears, some longer than it lasts.
func length(r *rand.Rand, e *engine, ttl time.Duration) time.Duration {
	most := terms{TTL: ttl}.tolerance() * 4 / 5
	if !e.leased {
		most, ttl = 40*time.Millisecond, 1200*time.Millisecond
	}
	if r.IntN(4) == 0 {
		return ttl*9/10 + time.Duration(r.Int64N(int64(ttl)))*7/10
	}
	return time.Duration(r.Int64N(int64(most)))
}

// vary gives a request what every store has.
func (e *engine) vary(r *rand.Rand, q *request) {
	switch r.IntN(12) {
	case 0:
		q.NoWait = q.Replace == "" // which takes time
	case 1, 2:
		q.Wait = 20*time.Millisecond + time.Duration(r.Int64N(int64(e.pace.window/2)))
	case 3:
		if e.queue {
			q.MaxQueue = r.IntN(4)
		}
	}
	if !e.leased && !q.Tree {
		switch r.IntN(10) {
		case 0:
			q.Exec = true
		case 1:
			q.Close = true
		}
	}
	if r.IntN(3) == 0 {
		q.Code = r.IntN(64) // golock's own begin there
	}
	for range r.IntN(8) / 5 * (1 + r.IntN(2)) {
		life := time.Duration(r.Int64N(int64(4 * e.pace.lasts)))
		if r.IntN(3) == 0 && !q.Tree && !q.Exec { // longer than it may keep a slot, or live when it has to die
			life = 2 * soon
		}
		if r.IntN(3) == 0 {
			q.Children = append(q.Children, life)
		} else {
			q.Daemons = append(q.Daemons, life)
		}
	}
	if r.IntN(12) == 0 {
		q.Stubborn = true
	}
	if r.IntN(16) == 0 && !q.Exec {
		q.Limit = time.Duration(1 + r.Int64N(int64(e.pace.lasts)))
	}
	if r.IntN(12) == 0 {
		q.KilledWhen = time.Duration(1 + r.Int64N(int64(e.youth)))
	}
}
