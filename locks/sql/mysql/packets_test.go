package mysql

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"golock/locks/locktest/server"
	"golock/locks/network"
)

func packet(number byte, body string) string {
	return string([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), number}) + body
}

// login is what a server sends until a client is in.
var login = packet(0, "\x0a8.0.0\x00\x01\x00\x00\x0012345678\x00\x0d\xa2\x21\x02\x00\x0f\x01\x15"+strings.Repeat("\x00", 10)+
	"123456789012\x00mysql_native_password\x00") + packet(2, "\x00\x00\x00\x02\x00\x00\x00")

// answer is a table of one column with a row.
var answer = packet(1, "\x01") + packet(2, "\x03def\x00\x00\x00\x01a\x00\x0c\x3f\x00\x01\x00\x00\x00\x08\x00\x00\x00\x00\x00") +
	packet(3, "\x011") + packet(4, "\xfe\x00\x00\x02\x00\x00\x00")

func follow(text string, size int) error {
	p := &packets{}
	for part := range slices.Chunk([]byte(text), size) {
		if err := p.Received(part); err != nil {
			return err
		}
	}
	return nil
}

func TestPackets(t *testing.T) {
	for size := 1; size < 20; size++ {
		for _, text := range []string{login, login + answer, login + packet(1, strings.Repeat("x", 70000))} {
			if err := follow(text, size); err != nil {
				t.Errorf("%.40q: %v", text, err)
			}
		}
		for _, text := range []string{
			"\xff\xff\xff\x00", "\x00\x00\x00\x00", packet(0, strings.Repeat("x", maxLoginPacket+1)), login + "\xff\xff\xff\x00",
			login + packet(1, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff"), login + packet(1, "\xfd\xff\xff\xff"),
		} {
			if follow(text, size) == nil {
				t.Errorf("%.40q passes", text)
			}
		}
	}
	p := &packets{}
	err := p.Sent([]byte(packet(1, "\x00\x08\x00\x00"+strings.Repeat("\x00", 28)))) // asks for TLS
	if err != nil || p.Received([]byte("\xff\xff\xff\x00")) != nil || p.Received(make([]byte, network.AnswerSize)) == nil {
		t.Errorf("behind TLS the size of an answer counts, and only that; %v", err)
	}
}

// Whatever a server sends is an error, and costs little memory. That the library does not panic is
// for golock to see to (network.Recover).
func FuzzPackets(f *testing.F) {
	f.Add([]byte(login + answer))
	f.Add([]byte(packet(0, "\x0a8")))
	f.Fuzz(func(_ *testing.T, text []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := connectBy(ctx, mysql.NewConfig(), nil, func(context.Context, string, string) (net.Conn, error) {
			return server.Canned(text), nil
		})
		if err == nil {
			_, _ = c.Run(ctx, "SELECT 1")
			c.Close()
		}
	})
}
