package network

import (
	"net"
	"net/netip"

	"golock/locks"
)

// Transport reports that connections without TLS leave this machine. visible is what others can see on
// such a connection, fix says how to encrypt it.
func Transport(hosts []string, visible, fix string) []locks.Finding {
	for _, address := range hosts {
		host, _, _ := net.SplitHostPort(address)
		if !IsLoopback(host) {
			return []locks.Finding{{
				Level: locks.Note, Subject: "transport", What: "the way to the server is not encrypted",
				Why: "somebody who sees the packets sees " + visible + ", and can change them", Fix: fix,
			}}
		}
	}
	return nil
}

// IsLoopback reports whether packets to a host never leave this machine.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
