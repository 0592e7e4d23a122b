package bind

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

const (
	widestGap  = 8  // beyond so many free units it is rather somebody else's port
	unknownMax = -1 // the kernel is not told a holder's max
)

// Entries implements locks.Store, whatever the name: there is one lock. Nobody knows
// who waits. The process of a holder is shown to those who may look into it.
func (s *Store) Entries(_ context.Context, name string) (entries []locks.Entry, _ error) {
	inodes := s.inodes(s.Abilities().MaxUnits)
	if slices.Max(inodes) == 0 {
		return nil, nil
	}
	users := map[uint64][]int{} // the processes that have a socket open, by its inode
	for _, pid := range procfs.PIDs() {
		sockets, _ := procfs.SocketsOf(pid)
		for _, inode := range sockets {
			users[inode] = append(users[inode], pid)
		}
	}
	last := -1
	for unit, inode := range inodes {
		if inode == 0 || unit-last > widestGap {
			continue
		}
		last = unit
		e := locks.Entry{Name: cmp.Or(name, s.URL()), State: locks.Holding, Slots: []int{unit}, Claim: locks.Claim{Weight: 1, Max: unknownMax}}
		kernel.Describe(&e, append(kernel.Roots(users[inode]), 0)[0])
		entries = append(entries, e)
	}
	return entries, nil
}

// inodes are those of the sockets that have the first units now; 0: nobody.
func (s *Store) inodes(units int) (found []uint64) {
	listeners := s.address.listeners()
	for unit := range units {
		found = append(found, listeners[s.address.listenerKey(unit)])
	}
	return found
}

// IsOpen implements kernel.Lock: the process has one of the units of the request.
func (s *Store) IsOpen(pid int, r locks.Request) (bool, error) {
	sockets, err := procfs.SocketsOf(pid)
	for _, inode := range s.inodes(r.Claim.Max) {
		if inode != 0 && slices.Contains(sockets, inode) {
			return true, nil
		}
	}
	return false, err
}

// Examine implements locks.Store. It never takes the address: a run with -n would find
// it taken.
func (s *Store) Examine(context.Context, time.Duration) ([]locks.Finding, error) {
	var found locks.Findings
	s.address.examine(&found)
	if n, ok := s.address.(socketName); !ok || !n.isFile() {
		found.OK("reach", "one network namespace: containers with a network of their own do not meet here")
	}
	found.Add(locks.Note, "order", "there is no queue: who waits tries ten times a second", "nobody is served in order",
		"the store local, if there is a directory that all share")
	return found, nil
}
