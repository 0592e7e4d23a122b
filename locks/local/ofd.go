package local

import (
	"golang.org/x/sys/unix"
)

// Open file description locks (fcntl(2), F_OFD_SETLK): they belong to the open
// file, so whoever inherited it keeps them, and the kernel drops them with its
// last descriptor, whatever way the process ended.
//
// The bytes that are locked lie far beyond the end of the file and carry no
// data. Bytes of different meaning are never neighbours: the kernel merges
// adjacent ranges of one description.
const (
	searchByte = 1 << 58 // write-locked while somebody looks for the process that is inside the gate
	gateByte   = 1 << 59 // write-locked while the table is read and changed
	waitBase   = 1 << 60 // + 4 x ticket: that ticket is waiting
	holdBase   = waitBase + 2
	pathBase   = 1 << 61 // + 60 bits of a hash: a holder opened the file in that place
)

// maxTicket keeps every ticket's bytes between waitBase and pathBase.
const maxTicket = (pathBase - waitBase) / 4

func waitByte(ticket int64) int64 { return waitBase + 4*ticket }
func holdByte(ticket int64) int64 { return holdBase + 4*ticket }

// setLock places or removes one lock. With wait it sleeps in the kernel until
// the lock is free; nothing but that can end the sleep.
func setLock(fd int, kind int16, start, length int64, wait bool) error {
	cmd := unix.F_OFD_SETLK
	if wait {
		cmd = unix.F_OFD_SETLKW
	}
	lk := unix.Flock_t{Type: kind, Start: start, Len: length}
	for {
		err := unix.FcntlFlock(uintptr(fd), cmd, &lk)
		if err != unix.EINTR {
			return err
		}
	}
}

// writeLocked reports whether another description holds a write lock in the
// range. It asks for a read lock on purpose: the heads of the queue take read
// locks for a moment when they wake, and a probe for a write lock would see
// those and take a dead holder for a live one.
func writeLocked(fd int, start, length int64) (bool, error) {
	for {
		lk := unix.Flock_t{Type: unix.F_RDLCK, Start: start, Len: length}
		err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk)
		if err == unix.EINTR {
			continue
		}
		return err == nil && lk.Type != unix.F_UNLCK, err
	}
}
