package bind

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"golock/internal/procfs"
	"golock/locks"
)

// port is a TCP port of an address of this machine. Unit N is the Nth port after it.
type port struct{ first netip.AddrPort }

// NewPort reads ADDRESS:PORT.
func NewPort(text string) (*Store, error) {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || i == len(text)-1 {
		return nil, errors.New("expected an address and a port, as in bind://127.0.0.1:7001 or bind://[::1]:7001")
	}
	if n, err := strconv.ParseUint(text[i+1:], 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("port: %q is not a number from 1 to 65535", text[i+1:])
	}
	first, err := netip.ParseAddrPort(text)
	a := first.Addr()
	switch {
	case err != nil:
		return nil, fmt.Errorf("host: %q is not an IP address; a host name can change its address", text[:i])
	case a.IsUnspecified():
		return nil, fmt.Errorf("host: %s means all addresses of the machine, where others could connect; name one, such as 127.0.0.1", a)
	case a.IsMulticast(), a.Is4In6(), a.Zone() != "":
		return nil, fmt.Errorf("host: %s: expected one address of this machine, without a zone; write an IPv4 address as IPv4", a)
	}
	return &Store{&port{first}}, nil
}

func (p *port) url() string { return "bind://" + p.first.String() }

func (p *port) units() int { return 65536 - int(p.first.Port()) }

func (p *port) unit(n int) netip.AddrPort {
	return netip.AddrPortFrom(p.first.Addr(), p.first.Port()+uint16(n))
}

func (p *port) take(unit int) (fds []int, release func() error, err error) {
	return listen(socketAddress(p.unit(unit)))
}

func socketAddress(at netip.AddrPort) (domain int, to unix.Sockaddr, name string) {
	if at.Addr().Is6() {
		return unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}, at.String()
	}
	return unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, at.String()
}

func (p *port) listeners() map[string]uint64 { return procfs.TCPListeners() }

func (p *port) listenerKey(unit int) string { return procfs.TCPName(p.unit(unit)) }

// examine reports whether the kernel may give the port to outgoing connections.
func (p *port) examine(found *locks.Findings) {
	var low, high int
	number := int(p.first.Port())
	text, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	_, err := fmt.Sscan(string(text), &low, &high)
	found.Judge("port",
		locks.Row{
			When: err != nil || number < low || number > high, Level: locks.OK,
			What: fmt.Sprintf("%d is not among those that the kernel gives to outgoing connections", number),
		},
		locks.Row{
			When: true, Level: locks.Note,
			What: fmt.Sprintf("%d is among those that the kernel gives to outgoing connections (%d to %d)", number, low, high),
			Why:  "any connection can have it for a while, unless ip_local_reserved_ports lists it: the lock counts as taken then",
			Fix:  fmt.Sprintf("a port below %d, or sysctl net.ipv4.ip_local_reserved_ports=%d", low, number),
		},
	)
}
