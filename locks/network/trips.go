package network

import (
	"slices"
	"sync"
	"time"

	"golock/locks"
)

// Trips measures the round trips on the connections to a server. Note does nothing on a nil Trips.
type Trips struct {
	mu   sync.Mutex      // guards the fields below
	last []time.Duration // the last round trips, at most keptTrips, in no order
	next int             // the index in last that Note overwrites next
}

// keptTrips is the number of round trips that Trips remembers.
const keptTrips = 8

// Note records the time of a round trip.
func (t *Trips) Note(took time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) < keptTrips {
		t.last = append(t.last, took)
		return
	}
	t.last[t.next] = took
	t.next = (t.next + 1) % keptTrips
}

// Distance returns the distance of a server to which a renewal needs the given number of round trips.
//
// Distance uses the lower quartile of the last round trips. A slow one may have met a busy server, or this
// process had to wait for a processor. The fastest ones may be wrong: a message that the server sent without
// a request may have come just after a request.
func (t *Trips) Distance(trips int) locks.Distance {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) == 0 {
		return locks.Distance{}
	}
	sorted := slices.Sorted(slices.Values(t.last))
	return locks.Distance{Trip: sorted[len(sorted)/4], Trips: trips}
}
