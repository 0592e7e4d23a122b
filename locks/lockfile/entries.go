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

// Entries implements locks.Store. It ignores the name, because a store has one lock. The kernel
// tells which process has the lock, but not since when. For a lock of the fcntl family that another
// user has, it does not even tell the process. Waiters are in the order of the kernel.
func (s *Store) Entries(_ context.Context, name string) ([]locks.Entry, error) {
	var st unix.Stat_t
	err := unix.Stat(s.path, &st)
	if err == unix.ENOENT {
		return nil, nil
	}
	if err != nil {
		return nil, &locks.PathError{Op: "stat", Path: s.path, Err: err}
	}
	carried := s.search(&st)
	holders, takers := holdersOf(carried)
	file := fileName(&st)
	for _, lock := range carried {
		file = lock.File // the kernel's name of the file, which can differ from the name that stat(2) gives
	}
	// The kernel's list also has waiters, and holders whose descriptors this user may not read.
	var waiters []locks.Entry
	// A listed lock without a PID may belong to a holder that search has found. surplus is the number of
	// listed locks minus the number of those holders. As long as it is not positive, such a lock has an entry.
	surplus := -len(holders)
	waitsOfCaller := int(s.waiting.Load())
	for _, lock := range s.listed(file) {
		e := newEntry(lock)
		switch {
		case lock.Waiting && waitsOfCaller > 0 && (lock.PID == os.Getpid() || lock.PID < 0):
			waitsOfCaller-- // a goroutine of this process that has given up waiting; it is no entry
		case lock.Waiting:
			e.Position = len(waiters) + 1
			kernel.Describe(&e, max(lock.PID, 0))
			waiters = append(waiters, e)
		case takers[lock.PID]:
			surplus++
		case lock.PID > 0:
			e.Orphaned = !kernel.Describe(&e, lock.PID)
			holders = append(holders, e)
		default:
			surplus++
			if surplus > 0 {
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

// search finds the processes whose descriptors carry a lock, as far as this user may read their
// descriptors. First it examines the processes that took the locks in the kernel's list. If one of
// them is not known, or does not carry its lock any more, search examines all processes, which takes
// long: another process has inherited that lock. It also examines them if the list is empty: in a container the
// kernel does not list a shared lock if the process that took it is dead.
func (s *Store) search(st *unix.Stat_t) (carried map[int]procfs.Lock) {
	carried = map[int]procfs.Lock{}
	list := s.listed(fileName(st))
	isComplete := len(list) > 0
	for _, l := range list {
		if l.Waiting {
			continue
		}
		if l.PID <= 0 || !s.noteCarried(carried, l.PID, st) {
			isComplete = false
			break
		}
	}
	if !isComplete {
		for _, pid := range procfs.PIDs() {
			s.noteCarried(carried, pid, st)
		}
	}
	return carried
}

// noteCarried adds the lock of a process to carried, by its PID, and reports whether it has one.
func (s *Store) noteCarried(carried map[int]procfs.Lock, pid int, st *unix.Stat_t) bool {
	all, _ := s.locksOf(pid, st)
	if len(all) > 0 {
		carried[pid] = all[0]
	}
	return len(all) > 0
}

// listed returns the locks on a file that the kernel lists.
func (s *Store) listed(file string) []procfs.Lock {
	return withoutRepeats(slices.DeleteFunc(s.ofFamily(procfs.Locks()), func(l procfs.Lock) bool { return l.File != file }))
}

// withoutRepeats cuts the list off where an exclusive lock begins a second time with its waiters: a
// list that was read in pieces can repeat them.
func withoutRepeats(list []procfs.Lock) []procfs.Lock {
	for i, lock := range list {
		if i > 0 && !lock.Waiting && !lock.Shared {
			return list[:i]
		}
	}
	return list
}

// locksOf returns the locks that the descriptors of a process carry.
func (s *Store) locksOf(pid int, st *unix.Stat_t) (found []procfs.Lock, err error) {
	fds, err := procfs.FDs(pid)
	for _, fd := range fds {
		// stat(2) would wait for a file server that does not answer. This call reads only what the kernel knows.
		var file unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, fmt.Sprintf("%s/fd/%d", procfs.Dir(pid), fd), unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &file)
		if err == nil && file.Ino == st.Ino && unix.Mkdev(file.Dev_major, file.Dev_minor) == uint64(st.Dev) {
			found = append(found, s.ofFamily(procfs.FDLocks(pid, fd))...)
		}
	}
	return found, err
}

// holdersOf returns the holders of the locks that search has found. Several processes may carry a lock,
// but it has one holder. takers has the PIDs of the processes that took the locks.
func holdersOf(carried map[int]procfs.Lock) (holders []locks.Entry, takers map[int]bool) {
	takers = map[int]bool{}
	pids := slices.Sorted(maps.Keys(carried))
	for _, pid := range kernel.Roots(pids) {
		lock := carried[pid]
		if len(holders) > 0 && (!lock.Shared || takers[lock.PID]) {
			continue // another process has the same lock
		}
		e := newEntry(lock)
		if lock.PID > 0 {
			takers[lock.PID] = true
		}
		if lock.PID > 0 && !slices.Contains(pids, lock.PID) {
			_, err := procfs.FDs(lock.PID)
			e.Orphaned = !os.IsPermission(err)
			if !e.Orphaned { // a process of another user took the lock, and the process that was found inherited it
				pid = lock.PID
			}
		}
		kernel.Describe(&e, pid)
		holders = append(holders, e)
	}
	return holders, takers
}

// newEntry makes the entry of a lock, without what concerns its process.
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

// ofFamily returns the locks of the family.
func (s *Store) ofFamily(all []procfs.Lock) []procfs.Lock {
	return slices.DeleteFunc(all, func(l procfs.Lock) bool {
		if s.family == Flock {
			return l.Kind != "FLOCK"
		}
		return l.Kind != "OFDLCK" && l.Kind != "POSIX"
	})
}

// fileName returns the name of a file in the kernel's lists. On overlayfs and btrfs its device is not
// the one that stat(2) gives.
func fileName(st *unix.Stat_t) string {
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
}

// IsOpen implements kernel.Lock. It reports whether a descriptor of the process carries the lock.
func (s *Store) IsOpen(pid int, _ locks.Request) (bool, error) {
	var st unix.Stat_t
	if unix.Stat(s.path, &st) != nil {
		return false, nil
	}
	found, err := s.locksOf(pid, &st)
	return len(found) > 0, err
}
