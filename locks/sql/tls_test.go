//go:build integration

package sql_test

import (
	"fmt"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
)

// The server's certificate is checked, and the client's is shown; nothing is sent in
// the clear to a server that wants TLS.
func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := sqltest.StartTLS(t, f.name)
		database := server.NewDatabase(t)
		open := func(url string) (locks.Store, error) { return f.open(url) }
		locktest.TLS(t, sqltest.ServerName, server.Certificate, server.Key, open, func(options ...string) string {
			return server.TCPURL(database, append(options, "tls=on", "quarantine=0")...)
		})
		locktest.Denied(t, f.openURL(t, server.TCPURL(database)), "n")

		// As the servers' own clients write it: the authority alone, or the name too.
		chain, full := "ssl-mode=VERIFY_CA&ssl-ca=%[1]s&ssl-cert=%[1]s&ssl-key=%[2]s", "ssl-mode=VERIFY_IDENTITY&ssl-ca=%[1]s&ssl-cert=%[1]s&ssl-key=%[2]s"
		if f.name == "postgres" {
			chain, full = "sslmode=verify-ca&sslrootcert=%[1]s&sslcert=%[1]s&sslkey=%[2]s", "sslmode=verify-full&sslrootcert=%[1]s&sslcert=%[1]s&sslkey=%[2]s"
		}
		with := func(options string) string {
			return server.TCPURL(database, fmt.Sprintf(options, server.Certificate, server.Key))
		}
		locktest.Release(t, locktest.Get(t, f.openURL(t, with(chain)), "chain"))
		locktest.Denied(t, f.openURL(t, with(full)), "n")
		locktest.Denied(t, f.openURL(t, server.TCPURL(database, "tls=verify-ca")), "n")
	})
}
