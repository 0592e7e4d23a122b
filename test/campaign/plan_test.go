//go:build integration

package campaign_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golock/test/testkit"
)

// A plan is all that is chosen at random for one round, from one seed: which runs start when with
// which flags, and which faults happen when. The outcome also depends on the machine.

type plan struct {
	Seed     uint64
	Ahead    [hosts]int64 // seconds that the clocks of the hosts are ahead
	TTL      time.Duration
	Requests []request
	Faults   []planned
	Outlasts bool // the first request is only for the fault that hits it
}

func (p *plan) name() string { return fmt.Sprintf("r%x", p.Seed) }

// socketFile says whether bind has a socket file, not an abstract name.
func (p *plan) socketFile() bool { return p.Seed%2 == 0 }

type planned struct {
	Kind  kind
	At    time.Duration
	For   time.Duration
	Pick  int           // which of those that are there then
	First bool          // it hits the first run, whatever Pick says
	After time.Duration // between what has to happen and the fault
}

// pace is how quickly things happen on a store.
type pace struct {
	ttls    []time.Duration
	youth   time.Duration // in which a newcomer is killed
	window  time.Duration // in which requests and faults come
	names   int
	each    int           // requests for a name
	lasts   time.Duration // a command, at most, if it is not one of the long ones
	long    time.Duration
	hits    int // faults of processes
	outages int // faults of other things, at most
}

// mix makes a request for one name what it is.
type mix func(r *rand.Rand, q *request)

func mutex(*rand.Rand, *request)           {}
func three(r *rand.Rand, q *request)       { q.Max, q.Weight = 3, 1+r.IntN(1+r.IntN(3)) }
func threeLight(_ *rand.Rand, q *request)  { q.Max = 3 }
func sixteen(r *rand.Rand, q *request)     { q.Max, q.Weight = 16, 1+r.IntN(1+r.IntN(16)) }
func readers(r *rand.Rand, q *request)     { q.Max = []int{1, 0, 0, 0}[r.IntN(4)] }
func changingMax(r *rand.Rand, q *request) { q.Max = []int{2, 5, 0}[r.IntN(3)] }
func priorities(r *rand.Rand, q *request)  { q.Priority = []int{-3, 0, 0, 7}[r.IntN(4)] }
func trees(r *rand.Rand, q *request)       { q.Max, q.Tree = 2, r.IntN(3) > 0 }
func replacements(r *rand.Rand, q *request) {
	q.Max, q.Replace = 1+r.IntN(2), []string{"", "waiting", "running"}[r.IntN(3)]
}
func holds(r *rand.Rand, q *request) {
	q.Max = 1 + r.IntN(2)
	if r.IntN(2) == 0 {
		q.Hold = time.Duration(50+r.IntN(600)) * time.Millisecond
	}
	q.NoWait = r.IntN(3) > 0
}

func newPlan(e *engine, seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 7))
	some := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most) + 1)) }
	p := &plan{Seed: seed, TTL: e.ttls[r.IntN(len(e.ttls))]}
	for i := range p.Ahead {
		if e.server && r.IntN(2) == 0 {
			p.Ahead[i] = r.Int64N(1e6)
		}
	}
	first := r.IntN(len(e.mixes))
	for i := range e.names {
		var bunch time.Duration
		for range e.each {
			q := request{Name: i, Host: r.IntN(hosts), Max: 1, Weight: 1, MaxQueue: -1}
			if r.IntN(3) > 0 { // the others come at the same time as the one before
				bunch = some(e.window)
			}
			q.At, q.Lasts = bunch, some(e.lasts)
			if r.IntN(10) == 0 {
				q.Lasts = some(e.long)
			}
			e.mixes[(first+i)%len(e.mixes)](r, &q)
			e.vary(r, &q)
			p.Requests = append(p.Requests, q)
		}
	}
	// A command would outlast the lease of its golock, which is stopped.
	if p.Outlasts = e.leased && r.IntN(2) == 0; p.Outlasts {
		q := request{Max: 1, Weight: 1, MaxQueue: -1, At: -1, Lasts: 3 * p.TTL}
		q.Stubborn = r.IntN(2) == 0
		p.Requests = append(p.Requests, q)
		f := planned{Kind: stopHolder, First: true, At: p.TTL / 8, For: 2 * p.TTL}
		p.Faults = append(p.Faults, f)
	}
	fault := func(kinds []kind, window time.Duration) planned {
		return planned{Kind: kinds[r.IntN(len(kinds))], At: some(window), Pick: r.IntN(1 << 20)}
	}
	for range e.hits {
		f := fault(e.faults, e.window*5/4)
		f.After, f.For = some(400*time.Microsecond), length(r, e, p.TTL)
		p.Faults = append(p.Faults, f)
	}
	kinds, often := e.places, 8
	if len(kinds) == 0 {
		often = 4
	}
	if len(e.beyond) > 0 && r.IntN(often) == 0 {
		p.Faults = append(p.Faults, fault(e.beyond, e.window))
		kinds = slices.Concat(kinds, e.beyond)
	}
	if len(e.places) > 0 {
		for range r.IntN(e.outages + 1) {
			f := fault(kinds, e.window)
			f.For = length(r, e, p.TTL)
			p.Faults = append(p.Faults, f)
		}
	}
	if e.leased && r.IntN(4) == 0 {
		p.Faults = append(p.Faults, fault([]kind{killHost}, e.window*5/4))
	}
	slices.SortStableFunc(p.Faults, func(a, b planned) int { return int(a.At - b.At) })
	if duration == 0 && !testkit.Deep() {
		p.thin()
	}
	p.holdThroughSplits(e)
	slices.SortStableFunc(p.Requests, func(a, b request) int { return int(a.At - b.At) })
	for i := range p.Requests {
		p.Requests[i].Token = i
	}
	return p
}

// thin leaves out every second request, for the short form. The faults stay.
func (p *plan) thin() {
	number := 0
	p.Requests = slices.DeleteFunc(p.Requests, func(q request) bool {
		number++
		return number%2 == 0 && q.At >= 0
	})
}

// holdThroughSplits has each host hold a name of its own until well after the last partition: whatever
// host that cuts off, others wait for what it holds.
func (p *plan) holdThroughSplits(e *engine) {
	for _, f := range slices.Backward(p.Faults) {
		if f.Kind != netSplit {
			continue
		}
		for host := range min(hosts, e.names) {
			q := request{Name: host, Host: host, Max: 1, Weight: 1, MaxQueue: -1}
			q.Lasts = f.At + 5*p.TTL
			p.Requests = append(p.Requests, q)
		}
		return
	}
}

// length is for how long a fault lasts: most are shorter than what a lease
// bears, some longer than it lasts.
func length(r *rand.Rand, e *engine, ttl time.Duration) time.Duration {
	most := tolerance(ttl) * 4 / 5
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
		q.Wait = 20*time.Millisecond + time.Duration(r.Int64N(int64(e.window/2)))
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
		life := time.Duration(r.Int64N(int64(4 * e.lasts)))
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
		q.Limit = time.Duration(1 + r.Int64N(int64(e.lasts)))
	}
	if r.IntN(12) == 0 {
		q.KilledWhen = time.Duration(1 + r.Int64N(int64(e.youth)))
	}
}
