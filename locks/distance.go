package locks

import "time"

// Distance says how far away a store is. The zero Distance is that of a store that is near, or of
// which nothing is known.
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

// RenewalLimit limits the time of a renewal. Where the store is far away, a renewal may connect, and wait
// for what got lost on the way.
func (t Term) RenewalLimit() time.Duration {
	return max(NearRenewalLimit(t.TTL), min(2*t.Distance.Renewal(), t.TTL/PerTTL))
}

// IsTooFar reports whether a lease would most likely be lost, even if nothing goes wrong.
func (t Term) IsTooFar() bool { return 2*t.TTL < 3*t.Distance.Renewal() }

// LeastTTL returns the shortest lease time that outlives the loss of a connection: two attempts fit
// between the time of a renewal and the stop signal.
func (d Distance) LeastTTL() time.Duration {
	const renewals = 3
	least := renewals * d.Renewal()
	return (least + time.Second - 1).Truncate(time.Second)
}
