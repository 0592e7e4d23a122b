package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"golock/locks"
	"golock/test/testkit"
)

// mix decides how likely the requests and steps of a history are.
type mix struct {
	workers, steps, locks int
	pause                 time.Duration // the longest pause between two steps
	units                 []int         // the maxima that are asked for
	weights, priorities   bool
	holds                 bool
	patience              int      // one in this number of requests does not wait
	words                 []string // the steps of a worker; a likely one is repeated in the list
}

// workload makes one history: workers take random steps, and record them.
type workload struct {
	t        *testing.T
	w        *world
	plain    bool
	leases   bool
	promises promises
	seed     uint64
	mix      mix
	names    []string
	urls     []string
	stores   []locks.Store // a store for each worker and name
	watch    []locks.Store // a store for each name, to list it
	began    time.Time

	mu      sync.Mutex // guards what follows
	members []*member
	history []porcupine.Operation
	broken  error
	waits   sync.WaitGroup
}

// member is one entry.
type member struct {
	id, lock, worker int
	request          locks.Request
	store            locks.Store
	joined           int64 // when it began to join
	cancel           context.CancelFunc

	// Guarded by the workload's mutex.
	waiting  bool
	left     int64 // when it was told to leave, or 0 if it was not
	lease    locks.Lease
	released bool
	stays    bool // its hold lasts longer than the history
}

// newWorkload makes the workload of a round. Its seed decides everything except the order in which the
// workers meet.
func newWorkload(t *testing.T, w *world, seed uint64, round int) *workload {
	c := &workload{t: t, w: w, seed: seed, began: time.Now()}
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(all ...int) int { return all[rng.IntN(len(all))] }
	first, err := w.engine.Open(w.url)
	testkit.Must(t, err)
	c.plain, c.leases = first.Abilities().Queue == nil, first.Abilities().Leases != nil
	lacks := first.Abilities()
	first.Close()
	m := mix{
		workers: pick(2, 3, 4), steps: pick(4, 8, 12), locks: pick(1, 1, 2),
		pause: time.Duration(pick(0, 0, 50, 500)) * time.Microsecond, patience: pick(2, 4, 10),
		words: []string{"join", "join", "join", "join", "release", "release", "release", "release", "leave", "list"},
	}
	switch rng.IntN(4) {
	case 0:
		m.units = []int{1}
	case 1:
		m.units = []int{0, 0, 1}
	case 2:
		m.units = []int{pick(2, 3)}
	default:
		m.units, m.weights = []int{0, 1, 2, 3, 4}, true
	}
	// In two of three rounds one worker does one step at a time, and lists the lock after each.
	oneByOne := round%3 > 0
	if oneByOne {
		m.workers, m.steps, m.locks = 1, 25, 1
	}
	m.priorities = rng.IntN(2) == 0
	m.holds = !c.plain && (oneByOne || rng.IntN(4) == 0)
	if !c.plain {
		m.words = append(m.words, []string{"renew", "evict"}[:1+pick(0, 1)]...)
	} else {
		m.weights, m.priorities = false, false
		switch {
		case lacks.NoMax != "":
			m.units = []int{0, 1}
		case lacks.NoShared != "": // all requests must name the same max
			m.units = []int{pick(1, 1, 2, 3)}
		}
	}
	c.mix = m
	c.promises = promises{unordered: c.plain, reserving: w.engine.Reserves, scanning: !c.leases}
	if c.plain {
		c.promises.searching, c.promises.sleepers = m.units[0] > 1, true
	}
	c.openAll(round)
	return c
}

// openAll opens the stores of all workers, and for each lock a store to list it.
func (c *workload) openAll(round int) {
	for i := range c.mix.locks {
		url := c.w.url
		if c.plain && round+i > 0 { // the URL of a plain store names the lock
			url = c.w.engine.Fresh(c.t)
		}
		c.urls = append(c.urls, url)
		c.names = append(c.names, fmt.Sprintf("history %d, name %d", round, i))
		c.watch = append(c.watch, c.open(i))
	}
	for range c.mix.workers {
		for i := range c.mix.locks {
			c.stores = append(c.stores, c.open(i))
		}
	}
}

func (c *workload) open(lock int) locks.Store {
	s, err := c.w.engine.Open(c.urls[lock])
	testkit.Must(c.t, err)
	return s
}

func (c *workload) close() {
	for _, s := range append(c.stores, c.watch...) {
		s.Close()
	}
}
