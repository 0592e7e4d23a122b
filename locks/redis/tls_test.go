package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golock/locks/redis/redistest"
)

// The server's certificate is checked, and the client's is shown.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t, "lock.example")
	port := strconv.Itoa(redistest.FreePort(t))
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	at := "rediss://127.0.0.1:" + port + "?quarantine=0"
	release(t, take(t, open(t, at+"&ca="+cert+"&server-name=lock.example&cert="+cert+"&key="+key), "n"))

	for _, tt := range []struct{ url, want string }{
		{at, "?ca=FILE"},
		{at + "&ca=" + cert, "127.0.0.1"},
		{at + "&ca=" + cert + "&server-name=other.example", "other.example"},
	} {
		err := denied(t, open(t, tt.url), "n")
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want something about %s", tt.url, err, tt.want)
		}
	}
	// The server wants a certificate and gets none. What it says to that may be
	// lost with the connection.
	_ = fails(t, open(t, at+"&ca="+cert+"&server-name=lock.example"), "n")
}

// certificate makes one that signs itself.
func certificate(t *testing.T, host string) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
