package server

import (
	"io"
	"net"
)

// Canned is a connection to a server that sends a text whatever it is asked, and then closes.
func Canned(text []byte) net.Conn {
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	go func() {
		_, _ = server.Write(text)
		server.Close()
	}()
	return client
}
