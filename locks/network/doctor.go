package network

import (
	"net"
	"net/netip"

	"golock/locks"
)

// Transport examines connections without TLS. seen is what others can see there, fix what
// encrypts them.
func Transport(hosts []string, seen, fix string) []locks.Finding {
	for _, at := range hosts {
		if host, _, _ := net.SplitHostPort(at); !IsLoopback(host) {
			return []locks.Finding{{
				Level: locks.Note, Subject: "transport", What: "the way to the server is not encrypted",
				Why: "who sees the packets sees " + seen + ", and can change them", Fix: fix,
			}}
		}
	}
	return nil
}

// IsLoopback reports whether nothing leaves this machine on the way to a host.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
