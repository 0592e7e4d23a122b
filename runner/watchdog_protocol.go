package runner

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// message is a packet between golock and the watchdog. It has a kind, a number, and texts without
// zero bytes.
type message struct {
	kind   messageKind
	number int64
	texts  []string
}

// messageKind says what a message means.
type messageKind byte

// The comments say what number and texts are. A message has none if its comment does not mention them.
const (
	// messages from golock to the watchdog
	msgLeaseRef messageKind = iota + 1 // texts: the store's URL, the IDs of the leases that the watchdog releases if golock is killed
	msgStart                           // number: the deadline; texts: variables for the command
	msgDeadline                        // number: the deadline, on CLOCK_BOOTTIME
	msgReap                            // golock knows that the command has ended: the watchdog may reap it
	msgEndHolds                        // the slots were not used: their holds end with the release

	// messages from the watchdog to golock
	msgStarted   // number: the PID of the command
	msgFailed    // number: the errno with which the command could not be executed; texts: a refused system call
	msgEnded     // number: the wait status of the command; texts: "killed" if the watchdog has killed it
	msgChildless // no descendant of the command is left
)

// socketPair makes a connection for packets that no other process can reach.
func socketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// send sends a message without waiting. It fails with unix.EPIPE if the other side has gone.
func send(fd int, kind messageKind, number int64, texts ...string) error {
	fields := append([]string{string(rune(kind)), strconv.FormatInt(number, 10)}, texts...)
	packet := []byte(strings.Join(fields, "\x00"))
	err := eintr.Repeat(func() error { return unix.Send(fd, packet, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) })
	if err == unix.ECONNRESET {
		return unix.EPIPE
	}
	return err
}

// receive receives a message without waiting. It fails with unix.EAGAIN if there is none, and with
// another error if the other side has gone. It first asks for the length of the message (MSG_PEEK, MSG_TRUNC),
// because recv(2) cuts off what does not fit into the buffer.
func receive(fd int) (message, error) {
	size, err := receivePacket(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return message{}, err
	}
	packet := make([]byte, size)
	if _, err = receivePacket(fd, packet, 0); err != nil {
		return message{}, err
	}
	fields := strings.Split(string(packet), "\x00")
	if len(fields) < 2 || len(fields[0]) != 1 {
		return message{}, unix.EPROTO // the message does not come from golock
	}
	kind, texts := messageKind(fields[0][0]), fields[2:]
	if kind == msgLeaseRef && len(texts) < 2 {
		return message{}, unix.EPROTO
	}
	number, err := strconv.ParseInt(fields[1], 10, 64)
	return message{kind: kind, number: number, texts: texts}, err
}

// receivePacket calls recv(2) for a packet. An empty packet means that the other side has gone.
func receivePacket(fd int, into []byte, flags int) (int, error) {
	n, err := eintr.Get(func() (int, error) {
		n, _, err := unix.Recvfrom(fd, into, flags|unix.MSG_DONTWAIT)
		return n, err
	})
	if err == nil && n == 0 {
		err = unix.EPIPE
	}
	return n, err
}
