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
	widestGap  = 8  // a unit further than this after the last taken unit likely belongs to another program
	unknownMax = -1 // the kernel does not know the max of a holder
)

// Entries implements locks.Store. It ignores the name, because a store has one lock. It cannot list
// waiters. It shows the process of a holder only to users who may read its descriptors.
func (s *Store) Entries(_ context.Context, name string) (entries []locks.Entry, _ error) {
	inodes := s.inodes(s.Abilities().MaxUnits)
	if slices.Max(inodes) == 0 {
		return nil, nil
	}
	users := map[uint64][]int{} // the processes that have a socket open, by the inode of the socket
	for _, pid := range procfs.PIDs() {
		sockets, _ := procfs.SocketsOf(pid)
		for _, inode := range sockets {
			users[inode] = append(users[inode], pid)
		}
	}
	lastTaken := -1
	for unit, inode := range inodes {
		if inode == 0 || unit-lastTaken > widestGap {
			continue
		}
		lastTaken = unit
		e := locks.Entry{Name: cmp.Or(name, s.URL()), State: locks.Holding, Slots: []int{unit}, Claim: locks.Claim{Weight: 1, Max: unknownMax}}
		holder := 0 // not known
		if roots := kernel.Roots(users[inode]); len(roots) > 0 {
			holder = roots[0]
		}
		kernel.Describe(&e, holder)
		entries = append(entries, e)
	}
	return entries, nil
}

// inodes returns the inodes of the listening sockets at the first units. A free unit has 0.
func (s *Store) inodes(units int) (found []uint64) {
	listeners := s.address.listeners()
	for unit := range units {
		found = append(found, listeners[s.address.listenerKey(unit)])
	}
	return found
}

// IsOpen implements kernel.Lock. It reports whether the process has the socket of one of the request's
// units open.
func (s *Store) IsOpen(pid int, r locks.Request) (bool, error) {
	sockets, err := procfs.SocketsOf(pid)
	for _, inode := range s.inodes(r.Claim.Max) {
		if inode != 0 && slices.Contains(sockets, inode) {
			return true, nil
		}
	}
	return false, err
}

// Examine implements locks.Store. It never takes the address, because a run with -n would find it
// taken.
func (s *Store) Examine(context.Context, time.Duration) ([]locks.Finding, error) {
	var found locks.Findings
	s.address.examine(&found)
	if n, ok := s.address.(socketName); !ok || !n.isFile() {
		found.OK("reach", "one network namespace: containers with a network of their own do not meet here")
	}
	found.Add(locks.Note, "order", "there is no queue: each waiter tries ten times a second", "waiters get their turn in no order",
		"the store local, if all runs share a directory")
	return found, nil
}
