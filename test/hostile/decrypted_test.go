//go:build integration

package hostile_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golock/locks/locktest/server"
	"golock/test/testkit"
)

// decrypted are servers that lie inside TLS, where only the client library sees the answer.
var decrypted = []struct {
	name, url string
	talk      func(c net.Conn, config *tls.Config)
	words     string
}{
	{"mysql, a count of 2^64-1", "mysql://u@ADDR/d?tls=on&", mysqlInTLS([]byte("\xfe\xff\xff\xff\xff\xff\xff\xff\xff"), false), "damaged"},
	{"mysql, a count of 10^9", "mysql://u@ADDR/d?tls=on&", mysqlInTLS([]byte("\xfe\x00\xca\x9a\x3b\x00\x00\x00\x00"), false), "damaged"},
	{"mysql, a count before it is asked", "mysql://u@ADDR/d?tls=on&", mysqlInTLS([]byte("\xfe\x00\xca\x9a\x3b\x00\x00\x00\x00"), true), "damaged"},
	{"mysql, a packet of 16 MB", "mysql://u@ADDR/d?tls=on&", mysqlInTLS(make([]byte, 2<<20), false), "longer than golock accepts"},
	{"postgres, a row of 1 GB", "postgres://u@ADDR/d?tls=on&", postgresInTLS, "longer than golock accepts"},
	{"redis, an array of 10^9", "rediss://ADDR?", func(c net.Conn, config *tls.Config) {
		secure := tls.Server(c, config)
		heard(secure)
		_, _ = secure.Write([]byte("*1000000000\r\n"))
		heard(secure)
	}, "longer than golock accepts"},
}

// heard reads a request.
func heard(c io.Reader) { _, _ = c.Read(make([]byte, 64<<10)) }

// mysqlInTLS lets a client log in, and answers its statement with a packet; unasked, together with the
// end of the login.
func mysqlInTLS(answer []byte, unasked bool) func(c net.Conn, config *tls.Config) {
	const usesTLS = 1 << 11
	return func(c net.Conn, config *tls.Config) {
		_, _ = c.Write(greeting(mysqlUsual|usesTLS, "mysql_native_password"))
		_, _ = io.ReadFull(c, make([]byte, 36)) // it asks for TLS
		secure := tls.Server(c, config)
		heard(secure)
		login := mysqlPacket(3, 0, 0, 0, 2, 0, 0, 0)
		if unasked {
			login = append(login, mysqlPacket(1, answer...)...)
		}
		_, _ = secure.Write(login)
		heard(secure)
		_, _ = secure.Write(mysqlPacket(1, answer...))
		heard(secure)
	}
}

func postgresInTLS(c net.Conn, config *tls.Config) {
	heard(c)
	_, _ = c.Write([]byte("S"))
	secure := tls.Server(c, config)
	heard(secure)
	_, _ = secure.Write(append(message('R', 0, 0, 0, 0), message('Z', 'I')...))
	heard(secure)
	_, _ = secure.Write([]byte("D\x3f\xff\xff\xff\x00\x01"))
	for range 100 {
		_, _ = secure.Write(many)
	}
	heard(secure)
}

// Inside TLS the answers are limited as they are without.
func TestDamagedAnswersInTLS(t *testing.T) {
	t.Parallel()
	const host = "db.example"
	cert, key, err := server.NewCertificate(testkit.Place(t, 0o755), host)
	testkit.Must(t, err)
	pair, err := tls.LoadX509KeyPair(cert, key)
	testkit.Must(t, err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	s := testkit.New(t, "")
	for _, lie := range decrypted {
		t.Run(lie.name, func(t *testing.T) {
			t.Parallel()
			socket := loopback(t)
			defer socket.Close()
			go func() {
				for {
					c, err := socket.Accept()
					if err != nil {
						return
					}
					go func() {
						defer c.Close()
						_ = c.SetDeadline(time.Now().Add(testkit.Patience))
						lie.talk(c, config)
					}()
				}
			}()
			url := strings.Replace(lie.url, "ADDR", socket.Addr().String(), 1) + "quarantine=0s&ca=" + cert + "&server-name=" + host
			r, peak := measured(t, s, 0, "run", "--store", url, "-w", "5", "--name", "x", "--", "echo", "started")
			r.Complaint(t, 69, lie.words)
			if peak > most {
				t.Errorf("golock used %d KiB", peak)
			}
		})
	}
}
