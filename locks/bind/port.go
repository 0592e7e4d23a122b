package bind

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// port is a TCP port of one address of this machine; unit N is the Nth after it.
type port struct{ first netip.AddrPort }

// NewPort reads ADDRESS:PORT.
func NewPort(text string) (*Store, error) {
	host, number, ok := cutLast(text, ':')
	if !ok || host == "" || number == "" {
		return nil, errors.New("want an address and a port, as in bind://127.0.0.1:7001 or bind://[::1]:7001")
	}
	first, err := netip.ParseAddrPort(text)
	if err != nil {
		n, numberErr := strconv.ParseUint(number, 10, 16)
		if numberErr != nil || n == 0 {
			return nil, fmt.Errorf("port: %q is not a number from 1 to 65535", number)
		}
		return nil, fmt.Errorf("host: %q is no IP address; a name could mean different ones at different times", host)
	}
	switch {
	case first.Port() == 0:
		return nil, fmt.Errorf("port: %q is not a number from 1 to 65535", number)
	case first.Addr().IsUnspecified():
		return nil, fmt.Errorf("host: %s is all addresses of the machine, where others could connect; take one, as 127.0.0.1", first.Addr())
	case first.Addr().IsMulticast():
		return nil, fmt.Errorf("host: %s is an address of many machines", first.Addr())
	case first.Addr().Is4In6():
		return nil, fmt.Errorf("host: write %s", first.Addr().Unmap())
	case first.Addr().Zone() != "":
		return nil, fmt.Errorf("host: an address with a zone cannot be used")
	}
	return &Store{space: &port{first}}, nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func (p *port) url() string { return "bind://" + p.first.String() }

func (p *port) units() int { return 65536 - int(p.first.Port()) }

func (p *port) of(unit int) netip.AddrPort {
	return netip.AddrPortFrom(p.first.Addr(), p.first.Port()+uint16(unit))
}

// maxTries is how often a newcomer tries again when another one tries at the same
// moment; nobody may have the port then.
const maxTries = 20

// take implements space. The first attempt is the plain one: whoever binds a
// port so has it against everybody.
//
// It fails also if there is nothing but remains: connections of a server that
// had the port before (TIME_WAIT), or a socket that drop has left to a daemon.
// SO_REUSEADDR passes over those, and over no other lock: the kernel refuses it
// beside a socket that listens or that has not set it. Two of that kind can both
// bind; only one of them can listen.
func (p *port) take(_ context.Context, unit int) (*held, error) {
	at := p.of(unit)
	fd, err := p.bind(at, false)
	for tries := 0; err == errTaken || err == errRival; tries++ {
		if fd, err = p.bind(at, true); err != errRival {
			break
		}
		if tries == maxTries {
			return nil, errTaken
		}
		standBack()
	}
	if err != nil {
		return nil, err
	}
	return &held{fd, p.drop}, nil
}

// standBack lets a rival go first: not all for the same time.
func standBack() { time.Sleep(20*time.Microsecond + rand.N(300*time.Microsecond)) }

// errRival says that another socket of the same kind is about to listen, or
// does.
var errRival = errors.New("somebody else tries")

func (p *port) bind(at netip.AddrPort, reuse bool) (fd int, err error) {
	address := at.String()
	domain, to := socketAddress(at)
	if fd, err = newSocket(domain); err != nil {
		return -1, &Error{Op: "socket", Address: address, Err: err}
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	if reuse {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fd, &Error{Op: "setsockopt", Address: address, Err: err}
		}
	}
	switch err := unix.Bind(fd, to); err {
	case nil:
	case unix.EADDRINUSE:
		return fd, errTaken
	default:
		return fd, bindError(address, at, err)
	}
	switch err := unix.Listen(fd, backlog); err {
	case nil:
		return fd, nil
	case unix.EADDRINUSE:
		return fd, errRival
	default:
		return fd, &Error{Op: "listen", Address: address, Err: err}
	}
}

func socketAddress(at netip.AddrPort) (domain int, to unix.Sockaddr) {
	if at.Addr().Is6() {
		return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
}

func bindError(address string, at netip.AddrPort, err error) error {
	e := &Error{Op: "bind", Address: address, Err: err}
	switch err {
	case unix.EACCES, unix.EPERM:
		e.Hint = "take a port above 1023; those below need root or CAP_NET_BIND_SERVICE"
		if at.Port() > 1023 {
			e.Hint = "something on this machine forbids this port"
		}
	case unix.EADDRNOTAVAIL:
		e.Hint = "this machine, or this network namespace, does not have that address"
	}
	return e
}

// drop gives a port back. A socket that somebody else has inherited cannot be
// unbound. But it can be told to stop listening, and to tolerate others.
func (p *port) drop(fd int) error {
	err := unix.Shutdown(fd, unix.SHUT_RDWR)
	if reuse := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = reuse
	}
	unix.Close(fd)
	if err != nil {
		return &Error{Op: "shutdown", Address: p.first.String(), Err: err}
	}
	return nil
}

// sockets implements space, by the kernel's list of sockets (proc(5),
// /proc/net/tcp).
func (p *port) sockets(n int) map[int]string {
	list := "/proc/self/net/tcp"
	if p.first.Addr().Is6() {
		list += "6"
	}
	text, _ := os.ReadFile(list)
	units := map[string]int{}
	for unit := range n {
		units[hexAddress(p.of(unit))] = unit
	}
	found := map[int]string{}
	for line := range strings.Lines(string(text)) {
		const listening = "0A"
		field := strings.Fields(line)
		if len(field) < 10 || field[3] != listening {
			continue
		}
		if unit, ok := units[field[1]]; ok {
			found[unit] = field[9]
		}
	}
	return found
}
