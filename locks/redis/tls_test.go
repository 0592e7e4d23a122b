//go:build integration

package redis_test

import (
	"strconv"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
)

// The server's certificate is checked, and the client's is shown.
func TestTLS(t *testing.T) {
	t.Parallel()
	const name = "lock.example"
	cert, key, err := server.NewCertificate(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(redistest.FreePort(t))
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	locktest.TLS(t, name, cert, key, func(url string) (locks.Store, error) { return redis.Open(url) }, func(options ...string) string {
		return "rediss://127.0.0.1:" + port + "?" + strings.Join(append(options, "quarantine=0"), "&")
	})
}
