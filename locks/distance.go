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

// LeastTTL returns the shortest lease time that outlives the loss of a connection: two attempts fit
// between the time of a renewal and the stop signal.
func (d Distance) LeastTTL() time.Duration {
	const renewals = 4
	least := renewals * d.Renewal()
	return (least + time.Second - 1).Truncate(time.Second)
}
