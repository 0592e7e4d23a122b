package term

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// notifier reports the waiting to systemd (sd_notify(3)): STATUS= is what
// systemctl status shows, EXTEND_TIMEOUT_USEC= extends the time to start. The
// command itself says when it is ready. A nil notifier does nothing.
type notifier struct {
	to    unix.Sockaddr
	text  string    // sent last
	until time.Time // the same text need not be sent before
}

// startTime is what each message grants the start: longer than the pause between
// two, so that the command has time too.
const startTime = 2 * statusPeriod

// newNotifier takes the value of NOTIFY_SOCKET: a path, or @ and an abstract name.
func newNotifier(address string) *notifier {
	if len(address) < 2 || (address[0] != '/' && address[0] != '@') {
		return nil // vsock
	}
	return &notifier{to: &unix.SockaddrUnix{Name: address}}
}

// waiting sends why the start takes time.
func (n *notifier) waiting(text string) {
	if n == nil || (text == n.text && time.Now().Before(n.until)) {
		return
	}
	n.send(text)
}

// done sends that the waiting is over.
func (n *notifier) done() {
	if n != nil && n.text != "" {
		n.send("")
	}
}

func (n *notifier) send(text string) {
	n.text, n.until = text, time.Now().Add(statusPeriod/2)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.Sendto(fd, []byte("STATUS="+text+"\nEXTEND_TIMEOUT_USEC="+strconv.FormatInt(startTime.Microseconds(), 10)), unix.MSG_NOSIGNAL, n.to)
}
