package runner

import (
	"encoding/binary"
	"strings"

	"golang.org/x/sys/unix"
)

// message is what golock and the guard say to each other: one packet each, a
// kind, a number and texts without zero bytes. What they mean:
//
//	golock to guard
//	  attach    texts: the store's URL, the lease's ID; what to give back in golock's stead
//	  start     number: the deadline; texts: variables for the command's environment
//	  deadline  number: the deadline, on CLOCK_BOOTTIME
//	  collect   the end of the command is known; its number may be given to others
//	guard to golock
//	  started   number: the command's process
//	  failed    number: the errno with which the command could not be executed
//	  stopped   the command has stopped
//	  ended     number: its wait status; texts: "killed" if the guard did that
//	  alone     nothing that descends from the command is left
type message struct {
	kind   kind
	number int64
	texts  []string
}

type kind byte

const (
	toAttach kind = iota + 1
	toStart
	toDeadline
	toCollect

	nowStarted
	nowFailed
	nowStopped
	nowEnded
	nowAlone
)

const headSize = 1 + 8

// socketPair makes a connection that keeps packets apart and that no other
// process can come by.
func socketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// sendTo sends without waiting.
func (m message) sendTo(fd int) error {
	packet := append(make([]byte, 0, 64), byte(m.kind))
	packet = binary.NativeEndian.AppendUint64(packet, uint64(m.number))
	packet = append(packet, strings.Join(m.texts, "\x00")...)
	for {
		if err := unix.Send(fd, packet, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != unix.EINTR {
			return err
		}
	}
}

// receive takes the next message, without waiting: unix.EAGAIN if there is
// none, unix.EPIPE if the other side has gone. How long a message is, is asked
// of that very message: what does not fit when it is taken is lost (recv(2),
// MSG_TRUNC), and one can arrive between two calls.
func receive(fd int) (message, error) {
	size, err := receiveFrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return message{}, err
	}
	packet := make([]byte, size)
	if _, err = receiveFrom(fd, packet, 0); err != nil {
		return message{}, err
	}
	m := message{kind: kind(packet[0]), number: int64(binary.NativeEndian.Uint64(packet[1:]))}
	if size > headSize {
		m.texts = strings.Split(string(packet[headSize:]), "\x00")
	}
	return m, nil
}

// receiveFrom is recv(2) of a packet that has at least a head.
func receiveFrom(fd int, into []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, into, flags|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.ECONNRESET || (err == nil && n < headSize):
			return 0, unix.EPIPE
		default:
			return n, err
		}
	}
}

// high gives a descriptor another number, beyond those that scripts and make's
// jobserver use, or one that at least nobody has. It stays close-on-exec.
func high(fd int) (int, error) {
	for _, from := range []int{100, 20, 3} {
		moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, from)
		if err == nil {
			unix.Close(fd)
			return moved, nil
		}
		if err != unix.EINVAL && err != unix.EMFILE {
			return -1, err
		}
	}
	return -1, unix.EMFILE
}
