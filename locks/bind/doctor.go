package bind

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
)

var _ locks.Examiner = (*Store)(nil)

// Examine implements locks.Examiner. It never takes the address: another run
// that does not wait would go away empty-handed.
func (s *Store) Examine(context.Context, time.Duration) ([]locks.Finding, error) {
	var found []locks.Finding
	add := func(f locks.Finding) { found = append(found, f) }
	users := locks.Finding{Level: locks.OK, Subject: "users", What: "nobody has the address now, as far as this user may see"}
	if n := len(s.space.sockets(1)); n > 0 {
		users.What = "somebody has the address now"
	}
	add(users)
	switch space := s.space.(type) {
	case *port:
		for _, f := range space.examine("/proc/sys/net/ipv4/") {
			add(f)
		}
	case *socketFile:
		dir := path.Dir(space.path)
		f := locks.Finding{Level: locks.OK, Subject: "directory", What: dir + " can be written"}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			f.Level, f.What, f.Why = locks.Problem, dir+" cannot be written: "+err.Error(), "no socket can be made there"
			f.Mend = "give this user the right to write it"
		}
		add(f)
	}
	if _, file := s.space.(*socketFile); !file {
		add(locks.Finding{Level: locks.OK, Subject: "reach", What: "one network namespace: containers with a network of their own do not meet here"})
	}
	add(locks.Finding{Level: locks.Note, Subject: "order", What: "there is no queue: who waits tries ten times a second", Why: "nobody is served in order", Mend: "the store local, if there is a directory that all share"})
	return found, nil
}

// examine looks at what the kernel does with the port otherwise.
func (p *port) examine(settings string) (found []locks.Finding) {
	number := int(p.first.Port())
	var low, high int
	text, err := os.ReadFile(settings + "ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &low, &high)
	}
	reserved, _ := os.ReadFile(settings + "ip_local_reserved_ports")
	switch {
	case err != nil:
	case number >= low && number <= high && !isReserved(strings.TrimSpace(string(reserved)), number):
		found = append(found, locks.Finding{
			Level: locks.Note, Subject: "port", What: fmt.Sprintf("%d is among those that the kernel gives to outgoing connections (%d to %d)", number, low, high),
			Why:  "any connection of any program can have it for a while: the lock counts as taken then",
			Mend: fmt.Sprintf("a port below %d, or sysctl net.ipv4.ip_local_reserved_ports=%d", low, number),
		})
	default:
		found = append(found, locks.Finding{Level: locks.OK, Subject: "port", What: fmt.Sprintf("%d is not among those that the kernel gives to outgoing connections", number)})
	}
	first := 1024
	if text, err := os.ReadFile(settings + "ip_unprivileged_port_start"); err == nil {
		first, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if number < first && os.Geteuid() != 0 {
		found = append(found, locks.Finding{
			Level: locks.Problem, Subject: "port", What: fmt.Sprintf("%d is below %d, where only root may bind", number, first), Why: "the lock cannot be taken, unless golock has the capability CAP_NET_BIND_SERVICE", Mend: "a higher port",
		})
	}
	return found
}

// isReserved reads a list like 8080,9000-9010.
func isReserved(list string, port int) bool {
	for part := range strings.SplitSeq(list, ",") {
		from, to, span := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if span {
			b, _ = strconv.Atoi(to)
		}
		if port >= a && port <= b {
			return true
		}
	}
	return false
}
