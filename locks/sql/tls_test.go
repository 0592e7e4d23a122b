//go:build integration

package sql_test

import (
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
)

// The server's certificate is checked, and the client's is shown; nothing is sent in
// the clear to a server that wants TLS.
func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.startTLS(t)
		database := server.NewDatabase(t)
		open := func(url string) (locks.Store, error) { return f.open(url) }
		locktest.TLS(t, sqltest.ServerName, server.Certificate, server.Key, open, func(options ...string) string {
			return server.TCPURL(database, append(options, "tls=on", "quarantine=0")...)
		})
		locktest.Denied(t, f.openURL(t, server.TCPURL(database)), "n")
	})
}
