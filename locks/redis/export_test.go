//go:build integration

package redis

import "golock/locks"

// SetClock replaces a store's clock. It must not have been used yet.
func SetClock(s *Store, c locks.Clock) { s.clock = c }

// MaxGrantAge is how old an Ask may be when it is answered by a published grant.
var MaxGrantAge = maxGrantAge
