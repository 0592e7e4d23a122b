package network

import (
	"crypto/tls"
	"net"
	"testing"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// TLSHint explains the alert of a server that wants a client's certificate. The alert comes after
// the handshake.
func TestHintOfAMissingCertificate(t *testing.T) {
	cert, key, err := server.NewCertificate(t.TempDir(), "lock.example")
	testkit.Must(t, err)
	own, err := tls.LoadX509KeyPair(cert, key)
	testkit.Must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert})
	testkit.Must(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.(*tls.Conn).Handshake()
			_, _ = c.(*tls.Conn).NetConn().(*net.TCPConn).Read(make([]byte, 1)) // waits until the client has closed
			c.Close()
		}
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	testkit.Must(t, err)
	_, err = c.Read(make([]byte, 1))
	c.Close()
	if hint, bad := TLSHint(err); !bad {
		t.Errorf("%v: hint %q; want it to be final", err, hint)
	}
}
