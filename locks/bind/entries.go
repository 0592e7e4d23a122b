package bind

import (
	"context"
	"iter"
	"os"
	"slices"

	"golock/locks"
	"golock/locks/kernel"
)

// Entries implements locks.Store, whatever the name: there is one lock. It knows
// the holders as far as the units that are taken are close together; nobody knows who waits, and the number of
// a process only who may look into it.
func (s *Store) Entries(_ context.Context, name string) iter.Seq2[locks.Entry, error] {
	return func(yield func(locks.Entry, error) bool) {
		if name == "" {
			name = s.URL()
		}
		for _, e := range s.list(name) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *Store) list(name string) []locks.Entry {
	sockets := s.space.sockets(s.Traits().MaxUnits)
	last := -1 // further on it is rather somebody else's port
	for unit := range s.Traits().MaxUnits {
		if _, ok := sockets[unit]; !ok {
			continue
		}
		if unit-last > widestGap {
			delete(sockets, unit)
			continue
		}
		last = unit
	}
	owners := map[string][]int{} // by inode
	for _, inode := range sockets {
		owners[socketName(inode)] = nil
	}
	if len(owners) == 0 {
		return nil
	}
	kernel.Processes(func(pid int, dir string) bool {
		_ = kernel.Descriptors(dir, func(number string) bool {
			socket, _ := os.Readlink(dir + "/fd/" + number)
			if have, ok := owners[socket]; ok && !slices.Contains(have, pid) {
				owners[socket] = append(have, pid)
			}
			return true
		})
		return true
	})
	var entries []locks.Entry
	for unit := range s.Traits().MaxUnits {
		inode, ok := sockets[unit]
		if !ok {
			continue
		}
		e := locks.Entry{Name: name, State: locks.Holding, Slots: []int{unit}, UID: -1, Claim: locks.Claim{Weight: 1, Max: unknownMax}}
		e.Host, _ = os.Hostname()
		if eldest := kernel.Eldest(owners[socketName(inode)]); len(eldest) > 0 {
			kernel.Describe(&e, eldest[0])
		}
		entries = append(entries, e)
	}
	return entries
}

// widestGap is how far from one unit that is taken the next one is looked for.
const widestGap = 8

// unknownMax is the max of a holder: the kernel is not told.
const unknownMax = -1

func socketName(inode string) string { return "socket:[" + inode + "]" }

// enclosing finds the run around us that holds a unit. That GOLOCK_HELD names it
// is not enough: what a run has left behind names it too, when others hold.
func (s *Store) enclosing(r locks.Request) *locks.Ref {
	for i := len(r.Within) - 1; i >= 0; i-- {
		if r.Within[i].Key != r.Ref.Key {
			continue
		}
		ours := map[string]bool{}
		for _, inode := range s.space.sockets(r.Claim.Max) {
			ours[socketName(inode)] = true
		}
		if kernel.Around(func(dir string) (yes bool, err error) {
			err = kernel.Descriptors(dir, func(number string) bool {
				socket, _ := os.Readlink(dir + "/fd/" + number)
				yes = ours[socket]
				return !yes
			})
			return yes, err
		}) {
			return &r.Within[i]
		}
		return nil
	}
	return nil
}
