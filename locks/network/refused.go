package network

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// IsTurnedAway reports an error of a connection that a server was there to end: it closed it, perhaps
// before its greeting because it has too many, or the queue of its unix socket is full (EAGAIN,
// unix(7)). A refused connection is none: nobody listens.
func IsTurnedAway(err error) bool {
	for _, passed := range []error{context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded} {
		if errors.Is(err, passed) {
			return false // golock itself has closed it
		}
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.EAGAIN} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}
