package sqltest_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
)

// Nobody comes in over TCP in the clear; the certificates are what they say.
func TestTLS(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *sqltest.Server{"mariadb": sqltest.StartMariaTLS, "postgres": sqltest.StartPostgresTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			database := s.NewDatabase(t)
			open(t, s.URL(database)).do(t, "SELECT 1")
			open(t, s.TLSURL(database)).do(t, "SELECT 1")
			fails := func(what, address string) {
				t.Helper()
				if _, err := dial(t, address); err == nil {
					t.Errorf("%s does", what)
				}
			}
			fails("no TLS", s.TCPURL(database))
			fails("another authority", s.TCPURL(database, "ca="+s.Certificates.OtherCA))
			fails("another name", strings.Replace(s.TLSURL(database), "127.0.0.1", "localhost", 1))

			s.RequireCertificate(t)
			fails("no certificate", s.TLSURL(database))
			open(t, s.TLSURL(database, "cert="+s.Certificates.Cert, "key="+s.Certificates.Key)).do(t, "SELECT 1")
		})
	}
}

func tlsConfig(t testing.TB, ca, cert, key string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	c.RootCAs.AppendCertsFromPEM(text)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}
