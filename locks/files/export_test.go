package files

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// At has f told each step of the protocol before it is made.
func (s *Store) At(f func(step string)) { s.hook = f }

// Keep has the store keep so many old versions only.
func (s *Store) Keep(n int64) { s.kept = n }

// Make has an entry make the directory of a name as often as it must try.
func (s *Store) Make(name string, failed func(error)) {
	for d := s.directoryOf(locks.KeyOf(name)); d.name == ""; {
		if err := d.findOrBuild(name); err != nil {
			failed(err)
		}
	}
}

// SetClock gives the store another machine's clock.
func (s *Store) SetClock(name string, clock locks.Clock) {
	s.clock, s.clockName = clock, func() string { return name }
}

// SetProcess gives the store what another one of this process has read about the process.
func (s *Store) SetProcess(o *Store) { s.self = o.self }

// RemovedFrom is the error of a directory that has vanished from a type of file system.
func (s *Store) RemovedFrom(fileSystem string) error {
	err := s.directoryOf(locks.KeyOf("n")).lossErrorOn(fileSystem, "")
	if !errors.Is(err, errRemoved) {
		panic("no step knows it")
	}
	return err
}

// Fill has the disk be full for versions while full is true, and counts them.
func (s *Store) Fill(full *atomic.Bool, refused *atomic.Int64) {
	made := s.make
	s.make = func(h *handle, n int64, v *state) error {
		if full.Load() {
			refused.Add(1)
			return unix.ENOSPC
		}
		return made(h, n, v)
	}
}
