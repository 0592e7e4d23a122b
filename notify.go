package main

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// notifier tells systemd that a service waits for its slot: what systemctl
// status is to show, and that the time for the start is not over as long as the
// line moves on (sd_notify(3): STATUS=, EXTEND_TIMEOUT_USEC=). That the service
// is ready is the command's to tell; it finds NOTIFY_SOCKET as it was.
//
// A nil notifier tells nobody. A manager that does not listen is none of a run's
// business: nothing waits for it, and no error is told.
type notifier struct {
	to    unix.Sockaddr
	text  string    // what was told last
	until time.Time // for how long nothing needs to be told again
}

// startTime is what every message grants the start from then on: more than is
// between two of them, and enough for the command at the end of the waiting.
const startTime = 2 * statusBeat

// newNotifier takes what NOTIFY_SOCKET says: a path, or @ and an abstract name.
func newNotifier(address string) *notifier {
	if len(address) < 2 || (address[0] != '/' && address[0] != '@') {
		return nil // vsock, or nothing that is known here
	}
	return &notifier{to: &unix.SockaddrUnix{Name: address}}
}

// waiting tells why the start takes its time, if that is news, and that it
// goes on.
func (n *notifier) waiting(text string) {
	if n == nil || (text == n.text && time.Now().Before(n.until)) {
		return
	}
	n.send(text)
}

// done tells that the waiting is over.
func (n *notifier) done() {
	if n != nil && n.text != "" {
		n.send("")
	}
}

func (n *notifier) send(text string) {
	n.text, n.until = text, time.Now().Add(statusBeat/2)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_ = unix.Sendto(fd, []byte("STATUS="+text+"\nEXTEND_TIMEOUT_USEC="+strconv.FormatInt(startTime.Microseconds(), 10)), unix.MSG_NOSIGNAL, n.to)
}
