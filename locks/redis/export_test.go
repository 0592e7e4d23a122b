package redis

import "golock/locks"

// SetClock replaces a store's clock. It must not have been used yet.
func SetClock(s *Store, c locks.Clock) { s.clock = c }

// Fresh is how old a look may be when it is answered by a grant.
var Fresh = fresh
