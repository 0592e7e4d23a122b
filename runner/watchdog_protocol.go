package runner

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
)

// message is a packet between golock and the watchdog: a kind, a number, and texts without zero
// bytes.
type message struct {
	kind   messageKind
	number int64
	texts  []string
}

type messageKind byte

const (
	// golock to watchdog
	msgLeaseRef messageKind = iota + 1 // texts: the store's URL, the lease's ID; to release in golock's stead
	msgStart                           // number: the deadline; texts: variables for the command
	msgDeadline                        // number: the deadline, on CLOCK_BOOTTIME
	msgReap                            // golock knows of the command's end

	// watchdog to golock
	msgStarted    // number: the command's process
	msgFailed     // number: the errno with which the command could not be executed
	msgStopped    // the command has stopped
	msgEnded      // number: its wait status; texts: "killed" if the watchdog did that
	msgUnkillable // number: a process that cannot be killed; texts: the error
	msgChildless  // no descendant of the command is left
)

// socketPair makes a connection for packets, which no other process can get at.
func socketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

// sendTo sends without waiting: unix.EPIPE if the other side has gone.
func (m message) sendTo(fd int) error {
	fields := append([]string{string(rune(m.kind)), strconv.FormatInt(m.number, 10)}, m.texts...)
	data := []byte(strings.Join(fields, "\x00"))
	if len(data) > len(packet) {
		return unix.EMSGSIZE
	}
	err := eintr.Repeat(func() error { return unix.Send(fd, data, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) })
	if err == unix.ECONNRESET {
		return unix.EPIPE
	}
	return err
}

// packet is where receive reads, in the one goroutine that does. The longest message has the
// variables of a command; the kernel takes 208 KiB, if nobody has set net.core.wmem_default.
var packet [1 << 18]byte

// receive takes the next message, without waiting: unix.EAGAIN if there is none, another error if
// the other side has gone.
func receive(fd int) (message, error) {
	n, err := eintr.Get(func() (int, error) {
		n, _, err := unix.Recvfrom(fd, packet[:], unix.MSG_DONTWAIT)
		return n, err
	})
	if err != nil {
		return message{}, err
	}
	fields := strings.Split(string(packet[:n]), "\x00")
	if len(fields) < 2 || fields[0] == "" { // the end is an empty packet
		return message{}, unix.EPIPE
	}
	number, err := strconv.ParseInt(fields[1], 10, 64)
	return message{kind: messageKind(fields[0][0]), number: number, texts: fields[2:]}, err
}
