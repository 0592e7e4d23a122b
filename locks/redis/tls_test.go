//go:build integration

package redis_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/locktest/server"
	"golock/locks/redis"
	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A server without TLS is known for it at once.
func TestNoTLS(t *testing.T) {
	t.Parallel()
	server, _ := steady(t, "--requirepass", "right-s3cret")
	began := time.Now()
	s := open(t, "rediss://"+server.Addr())
	_, listed := entries(s, "")
	for what, err := range map[string]error{"Join": Denied(t, s, "n"), "Entries": listed} {
		if err == nil || !strings.Contains(err.Error(), "no TLS answer from "+server.Addr()) || !strings.Contains(err.Error(), "did you mean redis://") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if took := time.Since(began); took > testkit.Patience/2 {
		t.Errorf("took %v", took)
	}
}

// The server's certificate is checked, and the client's is shown.
func TestTLS(t *testing.T) {
	t.Parallel()
	const name = "lock.example"
	cert, key, err := server.NewCertificate(t.TempDir(), name)
	testkit.Must(t, err)
	port := strconv.Itoa(redistest.FreePort(t))
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	TLS(t, name, cert, key, func(url string) (locks.Store, error) { return redis.Open(url) }, func(options ...string) string {
		return "rediss://127.0.0.1:" + port + "?" + strings.Join(append(options, "quarantine=0"), "&")
	})
}
