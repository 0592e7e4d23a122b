package local

import (
	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// Open file description locks (fcntl(2), F_OFD_SETLK) belong to the open file. The kernel
// drops them with its last descriptor, in whatever process that is and however it ends.
//
// The locked bytes lie far beyond the end of the file. Bytes of different meaning are
// never neighbours: the kernel merges adjacent ranges of one description.
const (
	searchByte = 1 << 58 // write-locked while somebody looks for the process that has the gate
	gateByte   = 1 << 59 // write-locked while the table is read and changed
	waitBase   = 1 << 60 // + 4 x ticket: that ticket is waiting
	holdBase   = waitBase + 2
	pathBase   = 1 << 61 // + 60 bits of a hash: a holder opened the file in that place
)

// maxTicket keeps every ticket's bytes between waitBase and pathBase.
const maxTicket = (pathBase - waitBase) / 4

func waitByte(ticket int64) int64 { return waitBase + 4*ticket }
func holdByte(ticket int64) int64 { return holdBase + 4*ticket }

// setLock places or removes the lock on one byte.
func setLock(fd int, kind int16, at int64) error {
	return fcntlLock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
}

// unlockFrom drops the locks of a description on all bytes from one on.
func unlockFrom(fd int, at int64) error {
	return fcntlLock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: at})
}

func fcntlLock(fd, command int, lk *unix.Flock_t) error {
	return eintr.Repeat(func() error { return unix.FcntlFlock(uintptr(fd), command, lk) })
}

// lockLater has a goroutine sleep in the kernel until it has a lock, and then call got.
// Nothing but the lock ends that sleep, so it can outlast whoever asked. It shares the file.
func (f *lockFile) lockLater(kind int16, at int64, got func(error)) {
	f.users.Add(1)
	go func() {
		defer f.close()
		got(f.failed("lock", fcntlLock(f.fd, unix.F_OFD_SETLKW, &unix.Flock_t{Type: kind, Start: at, Len: 1})))
	}()
}

// isLocked reports whether another description has a write lock in the range. It asks
// for a read lock on purpose: waiters take read locks for a moment when they wake, and
// must not make a dead holder look alive. The kernel has no reason to fail where it has
// locked the gate; if it does all the same, nobody is taken for dead.
func (f *lockFile) isLocked(start, length int64) bool {
	lk := unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: length}
	err := fcntlLock(f.fd, unix.F_OFD_GETLK, &lk)
	return err != nil || lk.Type != unix.F_UNLCK
}

// isReadLocked reports whether another description has any lock on a byte.
func (f *lockFile) isReadLocked(at int64) bool {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := fcntlLock(f.fd, unix.F_OFD_GETLK, &lk)
	return err != nil || lk.Type != unix.F_UNLCK
}

// isUsed reports whether anybody waits or holds.
func (f *lockFile) isUsed() bool { return f.isLocked(waitBase, pathBase-waitBase) }

// isLive reports whether the entry of a record waits or holds, if only by its hold.
func (f *lockFile) isLive(r *record) bool {
	locked := f.isLocked(r.lockByte(), 1)
	r.holdLeft = 0
	if r.holdUntil != 0 {
		r.holdLeft = f.momentOfRead().holdLeft(r)
	}
	r.onlyHold = !locked && r.holdLeft > 0
	return locked || r.onlyHold
}
