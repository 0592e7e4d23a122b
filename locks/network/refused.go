package network

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// IsTurnedAway reports whether a server was there and ended the connection. It may have closed it
// before its greeting, because it has too many connections. Or the queue of its unix socket is full
// (EAGAIN, unix(7)). After ECONNREFUSED the result is false: no server listens.
func IsTurnedAway(err error) bool {
	for _, byGolock := range []error{context.DeadlineExceeded, context.Canceled, os.ErrDeadlineExceeded} {
		if errors.Is(err, byGolock) {
			return false // golock itself has ended the connection
		}
	}
	for _, refusal := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE, unix.EAGAIN} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}
