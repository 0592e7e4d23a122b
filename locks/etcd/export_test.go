package etcd

import (
	"golock/locks"
	"golock/locks/lease"
)

// SetClock gives the store another clock.
func (s *Store) SetClock(clock locks.Clock) { s.clock = clock }

// EntryOf returns the entry of a request, so that a test can make its steps one by one.
func (s *Store) EntryOf(r locks.Request) lease.Entry { return s.newEntry(r) }

// RefusalOf returns the error of a call for an error that the cluster has answered.
func (s *Store) RefusalOf(code int, text string) error {
	return s.asRefusal(&status{code: code, text: text})
}
