package lockfile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
	"golock/locks/kernel"
)

// Entries implements locks.Store, whatever the name: there is one lock. The kernel
// tells which process has it, but not since when; of a lock of the fcntl family that
// another user has, not even the process. Waiters come in the kernel's order.
func (s *Store) Entries(_ context.Context, name string) ([]locks.Entry, error) {
	var st unix.Stat_t
	if err := unix.Stat(s.path, &st); err == unix.ENOENT {
		return nil, nil
	} else if err != nil {
		return nil, &locks.PathError{Op: "stat", Path: s.path, Err: err}
	}
	carried := s.search(&st)
	holders, takers := holdersOf(carried)
	file := fileName(&st)
	for _, lock := range carried {
		file = lock.File
	}
	// What the list tells beyond that: holders in processes that may not be looked into, and waiters.
	var waiters []locks.Entry
	unknown := -len(holders) // locks of the list that no process was seen to have
	own := int(s.waiting.Load())
	for _, lock := range s.listed(file) {
		e := newEntry(lock)
		switch {
		case lock.Waiting && own > 0 && (lock.PID == os.Getpid() || lock.PID < 0):
			own-- // who asks is not waiting any more
		case lock.Waiting:
			e.Position = len(waiters) + 1
			kernel.Describe(&e, max(lock.PID, 0))
			waiters = append(waiters, e)
		case takers[lock.PID]:
			unknown++
		case lock.PID > 0:
			e.Orphaned = !kernel.Describe(&e, lock.PID)
			holders = append(holders, e)
		default:
			if unknown++; unknown > 0 {
				kernel.Describe(&e, 0)
				holders = append(holders, e)
			}
		}
	}
	entries := append(holders, waiters...)
	for i := range entries {
		entries[i].Name = cmp.Or(name, s.URL())
	}
	return entries, nil
}

// search finds the processes whose descriptors carry a lock, as far as this user may look into
// them: those that took what the kernel lists if they still have it, else all, which takes time.
// In a container the kernel does not list a shared lock whose taker is dead.
func (s *Store) search(st *unix.Stat_t) (carried map[int]procfs.Lock) {
	carried = map[int]procfs.Lock{}
	carries := func(pid int) bool {
		all, _ := s.locksOf(pid, st)
		if len(all) > 0 {
			carried[pid] = all[0]
		}
		return len(all) > 0
	}
	isHeir := func(l procfs.Lock) bool { return !l.Waiting && (l.PID <= 0 || !carries(l.PID)) }
	if list := s.listed(fileName(st)); len(list) == 0 || slices.ContainsFunc(list, isHeir) {
		for _, pid := range procfs.PIDs() {
			carries(pid)
		}
	}
	return carried
}

// listed are the locks on a file that the kernel lists.
func (s *Store) listed(file string) []procfs.Lock {
	return once(slices.DeleteFunc(s.ofFamily(procfs.Locks()), func(l procfs.Lock) bool { return l.File != file }))
}

// once cuts off what a list that was read in pieces has twice: an exclusive lock and its waiters.
func once(list []procfs.Lock) []procfs.Lock {
	for i, lock := range list {
		if i > 0 && !lock.Waiting && !lock.Shared {
			return list[:i]
		}
	}
	return list
}

// locksOf are the locks that the descriptors of one process carry.
func (s *Store) locksOf(pid int, st *unix.Stat_t) (found []procfs.Lock, err error) {
	fds, err := procfs.FDs(pid)
	for _, fd := range fds {
		// Of a file on a server that does not answer only what the kernel knows.
		var file unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("%s/fd/%d", procfs.Dir(pid), fd), unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &file)
		if err == nil && file.Ino == st.Ino && unix.Mkdev(file.Dev_major, file.Dev_minor) == uint64(st.Dev) {
			found = append(found, s.ofFamily(procfs.FDLocks(pid, fd))...)
		}
	}
	return found, err
}

// holdersOf are the locks that were found by descriptors, each once, with the process that took
// it.
func holdersOf(carried map[int]procfs.Lock) (holders []locks.Entry, takers map[int]bool) {
	takers = map[int]bool{}
	pids := slices.Sorted(maps.Keys(carried))
	for _, pid := range kernel.Roots(pids) {
		lock := carried[pid]
		if len(holders) > 0 && (!lock.Shared || takers[lock.PID]) {
			continue // the same lock, in another process
		}
		e := newEntry(lock)
		if lock.PID > 0 {
			takers[lock.PID] = true
		}
		if lock.PID > 0 && !slices.Contains(pids, lock.PID) {
			_, err := procfs.FDs(lock.PID)
			if e.Orphaned = !os.IsPermission(err); !e.Orphaned {
				pid = lock.PID // another user's, from which the one that is seen has it
			}
		}
		kernel.Describe(&e, pid)
		holders = append(holders, e)
	}
	return holders, takers
}

func newEntry(lock procfs.Lock) locks.Entry {
	e := locks.Entry{State: locks.Holding, Claim: locks.Claim{Weight: 1, Max: 1}}
	if lock.Waiting {
		e.State = locks.Waiting
	}
	if lock.Shared {
		e.Claim.Max = 0
	} else if !lock.Waiting {
		e.Slots = []int{0}
	}
	return e
}

// ofFamily keeps the locks of the family.
func (s *Store) ofFamily(all []procfs.Lock) []procfs.Lock {
	return slices.DeleteFunc(all, func(l procfs.Lock) bool {
		if s.family == Flock {
			return l.Kind != "FLOCK"
		}
		return l.Kind != "OFDLCK" && l.Kind != "POSIX"
	})
}

// fileName is the name of a file in the kernel's lists. Overlayfs and btrfs have
// another device there than in stat(2).
func fileName(st *unix.Stat_t) string {
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
}

// IsOpen implements kernel.Lock: the process has a descriptor that carries the lock.
func (s *Store) IsOpen(pid int, _ locks.Request) (bool, error) {
	var st unix.Stat_t
	if unix.Stat(s.path, &st) != nil {
		return false, nil
	}
	found, err := s.locksOf(pid, &st)
	return len(found) > 0, err
}
