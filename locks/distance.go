package locks

import "time"

// Distance says how far away a store is. The zero Distance stands for a store that is near, or whose distance
// is not known.
type Distance struct {
	Trip  time.Duration // the time of a round trip
	Trips int           // the number of round trips of a renewal that has to connect first
}

// Renewal returns the time of a renewal that has to connect first.
func (d Distance) Renewal() time.Duration { return d.Trip * time.Duration(d.Trips) }

// PerTTL is the number of renewals of a lease in a TTL, if none fails.
const PerTTL = 3

// NearRenewalLimit limits the time of a renewal at a store that is near.
func NearRenewalLimit(ttl time.Duration) time.Duration { return min(ttl/10, time.Second) }

// RenewalLimit limits the time of a renewal. If the store is far away, the limit leaves time to connect, and to
// repeat what was lost on the way.
func (t Term) RenewalLimit() time.Duration {
	return max(NearRenewalLimit(t.TTL), min(2*t.Distance.Renewal(), t.TTL/PerTTL))
}

// IsTooFar reports whether a lease would most likely be lost, even if nothing goes wrong. A renewal begins when
// a third of the TTL is over, so the other two thirds must be enough for it.
func (t Term) IsTooFar() bool { return 2*t.TTL < 3*t.Distance.Renewal() }

// leastRenewals is how many renewals, each with a new connection, must fit into a TTL. Then two attempts fit
// between the time of a renewal and the stop signal.
const leastRenewals = 3

// IsFar reports whether the store is so far away that the lease may not outlive the loss of a connection.
func (t Term) IsFar() bool { return t.TTL < leastRenewals*t.Distance.Renewal() }

// LeastTTL returns the shortest lease time that outlives the loss of a connection, rounded up to whole seconds.
func (d Distance) LeastTTL() time.Duration {
	return (leastRenewals*d.Renewal() + time.Second - 1).Truncate(time.Second)
}
