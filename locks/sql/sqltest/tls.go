package sqltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ServerName is in the certificate of a server with TLS, beside 127.0.0.1; the
// name localhost is not.
const ServerName = "lock.example"

// Certificates are files for clients of a server with TLS.
type Certificates struct {
	CA        string // signs the server's and the client's
	Cert, Key string // the client's
	OtherCA   string // has signed nothing

	serverCert, serverKey string
}

func newCertificates(dir string, a *account) (*Certificates, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	other, err := newAuthority()
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	c := &Certificates{
		CA: file("ca.pem"), OtherCA: file("other.pem"), Cert: file("client.pem"), Key: file("client.key"),
		serverCert: file("server.pem"), serverKey: file("server.key"),
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: ServerName},
		DNSNames: []string{ServerName}, IPAddresses: []net.IP{net.ParseIP(loopback)},
	}
	client := &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "golock"}}
	for _, step := range []func() error{
		func() error { return writePEM(c.CA, "CERTIFICATE", ca.certificate.Raw) },
		func() error { return writePEM(c.OtherCA, "CERTIFICATE", other.certificate.Raw) },
		func() error { return ca.issue(server, c.serverCert, c.serverKey) },
		func() error { return ca.issue(client, c.Cert, c.Key) },
		func() error { return a.own(c.serverKey) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sqltest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key}, err
}

func (a *authority) issue(template *x509.Certificate, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.NotBefore, template.NotAfter = a.certificate.NotBefore, a.certificate.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(certFile, "CERTIFICATE", der); err != nil {
		return err
	}
	return writePEM(keyFile, "PRIVATE KEY", secret)
}

func writePEM(file, kind string, der []byte) error {
	mode := os.FileMode(0o644)
	if kind == "PRIVATE KEY" {
		mode = 0o600
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
