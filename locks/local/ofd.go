package local

import (
	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// Open file description locks (fcntl(2), F_OFD_SETLK) belong to the open file. The kernel drops
// them when its last descriptor is closed, which any process may have inherited.
//
// The locked bytes are far beyond the end of the file. Bytes with different meanings are never
// neighbours, because the kernel merges adjacent ranges of one description.
const (
	searchByte = 1 << 58      // locked for writing while a process searches for the one that has the gate locked
	gateByte   = 1 << 59      // locked for writing while a process reads and changes the table
	waitBase   = 1 << 60      // + 4 x ticket: locked while that ticket waits
	holdBase   = waitBase + 2 // + 4 x ticket: locked while that ticket holds
	pathBase   = 1 << 61      // + 60 bits of a hash of a location: locked for reading by every holder (removed.go)
)

// maxTicket keeps the bytes of all tickets between waitBase and pathBase.
const maxTicket = (pathBase - waitBase) / 4

func waitByte(ticket int64) int64 { return waitBase + 4*ticket }
func holdByte(ticket int64) int64 { return holdBase + 4*ticket }

// setLock places or removes a lock on one byte.
func setLock(fd int, kind int16, at int64) error {
	return fcntlLock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
}

// unlockFrom removes the locks of a description on all bytes from one byte on.
func unlockFrom(fd int, at int64) error {
	return fcntlLock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK, Start: at})
}

func fcntlLock(fd, command int, lk *unix.Flock_t) error {
	return eintr.Repeat(func() error { return unix.FcntlFlock(uintptr(fd), command, lk) })
}

// lockLater starts a goroutine that sleeps in the kernel until it has a lock, and then calls got.
// Only the lock ends that sleep, so the goroutine can outlast its caller. It counts as a user of
// the file.
func (f *lockFile) lockLater(kind int16, at int64, got func(error)) {
	f.users.Add(1)
	go func() {
		defer f.close()
		got(f.failed("lock", fcntlLock(f.fd, unix.F_OFD_SETLKW, &unix.Flock_t{Type: kind, Start: at, Len: 1})))
	}()
}

// isLocked reports whether another description has a write lock in the range. A read lock does not
// count: waiters take read locks for a moment when they wake, and these must not make a dead holder
// look alive. The test should not fail, because the kernel has just locked the gate. If it fails, the
// range counts as locked, so that no live entry is taken for dead.
func (f *lockFile) isLocked(start, length int64) bool {
	lk := unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: length} // only write locks conflict with a read lock
	err := fcntlLock(f.fd, unix.F_OFD_GETLK, &lk)
	return err != nil || lk.Type != unix.F_UNLCK
}

// isLockedAtAll reports whether another description has a read lock or a write lock on a byte.
func (f *lockFile) isLockedAtAll(at int64) bool {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	err := fcntlLock(f.fd, unix.F_OFD_GETLK, &lk)
	return err != nil || lk.Type != unix.F_UNLCK
}

// isUsed reports whether any entry waits or holds.
func (f *lockFile) isUsed() bool { return f.isLocked(waitBase, pathBase-waitBase) }

// isLive reports whether the entry of a record waits or holds. A slot that only a hold keeps is live
// too. isLive sets holdLeft and onlyHold of the record.
func (f *lockFile) isLive(r *record) bool {
	locked := f.isLocked(r.lockByte(), 1)
	r.holdLeft = 0
	if r.holdUntil != 0 {
		r.holdLeft = f.momentOfRead().holdLeft(r)
	}
	r.onlyHold = !locked && r.holdLeft > 0
	return locked || r.onlyHold
}
