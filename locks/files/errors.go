package files

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// isTemporary reports an error that a shared file system may get over by itself.
func isTemporary(err error) bool {
	for _, passes := range []error{unix.EIO, unix.ESTALE, unix.ETIMEDOUT, unix.EAGAIN, unix.EHOSTDOWN, unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ECONNREFUSED, unix.EREMOTEIO, unix.ENFILE, unix.EMFILE, unix.ENOMEM} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}

// isTemporaryInQueue is isTemporary for somebody who has an entry already: disks get room
// again.
func isTemporaryInQueue(err error) bool { return isTemporary(err) || noSpace(err) }

// noSpace reports that a disk is full.
func noSpace(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// await runs f, which a file system may hold up for any time, and waits for what
// it gives until ctx ends.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r.err = locks.NewPanicError(v)
			}
			done <- r
		}()
		r.value, r.err = f()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once
		return r.value, r.err
	default:
		var none T
		return none, ctx.Err()
	}
}
