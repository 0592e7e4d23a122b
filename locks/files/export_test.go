package files

import "golock/locks"

// At has f told each step of the protocol before it is made.
func (s *Store) At(f func(step string)) { s.at = f }

// SetClock gives the store another machine's clock.
func (s *Store) SetClock(name string, clock locks.Clock) {
	s.clock, s.clockName = clock, func() string { return name }
}

// TokenText reads a token's name and writes it again.
func TokenText(name string) (string, bool) {
	t, ok := parseToken(name)
	return t.String(), ok
}
