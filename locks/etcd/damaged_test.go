//go:build integration

package etcd_test

import (
	"context"
	"net"
	"testing"
	"time"

	. "golock/locks/locktest"
	"golock/test/testkit"
)

// What no etcd sends is an error, and neither a crash nor a grant.
func TestDamagedAnswers(t *testing.T) {
	t.Parallel()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, text := range map[string]string{
		"another protocol":    "HTTP/1.1 400 Bad Request\r\n\r\n",
		"TLS":                 "\x15\x03\x01\x00\x02\x02\x46",
		"nothing":             "",
		"a large frame":       settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
		"bad headers":         settings + "\x00\x00\x02\x01\x05\x00\x00\x00\x01\xff\xff",
		"endless headers":     settings + "\x00\x00\x00\x01\x00\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00\x01",
		"a large message":     settings + "\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\xff\xff\xff\xff",
		"a compressed one":    settings + "\x00\x00\x05\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00",
		"padding of nothing":  settings + "\x00\x00\x00\x00\x08\x00\x00\x00\x01",
		"a window of 1 byte":  settings + "\x00\x00\x01\x08\x00\x00\x00\x00\x00\x01",
		"an end without data": settings + "\x00\x00\x00\x00\x01\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listen, err := net.Listen("tcp", "127.0.0.1:0")
			testkit.Must(t, err)
			defer listen.Close()
			go func() {
				for {
					c, err := listen.Accept()
					if err != nil {
						return
					}
					_, _ = c.Read(make([]byte, 1<<12))
					_, _ = c.Write([]byte(text))
					c.Close()
				}
			}()
			ctx, cancel := context.WithTimeout(background, 2*time.Second)
			defer cancel()
			_, err = open(t, "etcd://"+listen.Addr().String()).Join(ctx, NewRequest(t, "n"))
			if err == nil {
				t.Error("it lets in")
			}
			t.Log(err)
		})
	}
}
