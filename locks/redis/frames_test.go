package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks/locktest/server"
	"golock/locks/network"
)

// replies are sound ones, with what has been asked before.
var replies = []struct{ asked, text string }{
	{"", "+OK\r\n"}, {"", "-ERR no\r\n"}, {"", ":-7\r\n"}, {"", "$-1\r\n"}, {"", "*-1\r\n"}, {"", "*0\r\n"},
	{"", "$0\r\n\r\n"}, {"", "$5\r\na\r\nbc\r\n"}, {"", "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n"},
	{"*2\r\n$9\r\nsubscribe\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"},
	{"*2\r\n$9\r\nsubscribe\r\n", "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$9\r\nm a 1 b 2\r\n"},
	{"*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n", "*2\r\n$1\r\na\r\n$1\r\n1\r\n"},
	{"*2\r\n$9\r\nsubscribe\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n+PONG\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n"},
	{"", "%2\r\n$1\r\na\r\n*1\r\n:1\r\n+b\r\n#t\r\n"}, {"", "~1\r\n,1.5\r\n"}, {"", "=5\r\ntxt:x\r\n"}, {"", "_\r\n"},
	{"", "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:1\r\n$1\r\nx\r\n*0\r\n"},
}

// follow gives a text to frames in parts.
func follow(asked string, text []byte, size int) error {
	f := &frames{pending: 3}
	if err := f.Sent([]byte(asked)); err != nil {
		return err
	}
	for part := range slices.Chunk(text, size) {
		if err := f.Received(part); err != nil {
			return err
		}
	}
	return nil
}

func TestFrames(t *testing.T) {
	for size := 1; size < 20; size++ {
		for _, r := range replies {
			if err := follow(r.asked, []byte(strings.Repeat(r.text, 3)), size); err != nil {
				t.Errorf("%q: %v", r.text, err)
			}
		}
		const subscribe, sentinel = "*2\r\n$9\r\nsubscribe\r\n", "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n"
		for _, r := range []struct{ asked, text string }{
			{"", "*1000000000\r\n"}, {"", "*-2\r\n"}, {"", "*+1\r\n"}, {"", "$999999999999999999999\r\n"}, {"", "$20000000\r\n"},
			{"", "|1\r\n"}, {"", "%1\r\n*1\r\n:1\r\n:1\r\n"}, {"", "%1073741824\r\n"}, {"", "*2\r\n*2147483647\r\n"}, {"", "*262145\r\n"}, {"", "%131073\r\n"}, {"", "\r\n"}, {"", "+OK\n"}, {"", "+" + strings.Repeat("x", maxLine+1)},
			{"", strings.Repeat("*1\r\n", maxDepth+1)}, {"", strings.Repeat("*131073\r\n", 2)},
			{sentinel, "*0\r\n"}, {sentinel, "*1\r\n$1\r\nx\r\n"},
			{subscribe, "*1\r\n$1\r\nx\r\n"}, {subscribe, "*3\r\n:1\r\n:2\r\n:3\r\n"},
			{subscribe, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n$1\r\nx\r\n"}, {subscribe, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*0\r\n"},
			{subscribe, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$7\r\nm a 1 b\r\n"},
			{subscribe, "*4\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nm\r\n$9\r\na b c d e\r\n"},
		} {
			if follow(r.asked, []byte(r.text), size) == nil {
				t.Errorf("%.40q passes", r.text)
			}
		}
	}
	f := &frames{}
	if err := f.Received([]byte("$5\r\nab")); err != nil || f.Sent(nil) == nil {
		t.Errorf("a request after half an answer passes; %v", err)
	}
	f = &frames{}
	ping := []byte("*1\r\n$4\r\nPING\r\n")
	refused := f.Received([]byte("-ERR max number of clients reached\r\n"))
	begun := f.Sent(ping[:9])
	sent := f.Sent(ping[9:])
	answered := f.Received([]byte("+PONG\r\n"))
	second := f.Received([]byte("+PONG\r\n"))
	if err := errors.Join(refused, begun, sent, answered); err != nil || second == nil {
		t.Errorf("a second reply passes; %v", err)
	}
}

// Bytes that pass the check do not make the library panic or use much memory: golock cannot recover from
// a panic in the library's own goroutines.
func FuzzFrames(f *testing.F) {
	for _, r := range replies {
		f.Add([]byte(r.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ask := func(what string, ask func(ctx context.Context, c *goredis.Client)) {
			o := clientOptions()
			o.Dialer = watched(func(context.Context, string, string) (net.Conn, error) {
				return server.Canned(append([]byte("*0\r\n"), text...)), nil // the first answers HELLO
			}, nil)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			c := goredis.NewClient(o.Simple())
			defer c.Close()
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("%s: %q: %v", what, text, v)
				}
			}()
			ask(ctx, c)
		}
		ask("command", func(ctx context.Context, c *goredis.Client) { c.Do(ctx, "x") })
		ask("list", func(ctx context.Context, c *goredis.Client) { c.ZRange(ctx, "x", 0, -1) })
		ask("cluster", func(ctx context.Context, c *goredis.Client) { c.ClusterSlots(ctx) }) //nolint:staticcheck // the cluster client asks it
		ask("commands", func(ctx context.Context, c *goredis.Client) { c.Command(ctx) })
		ask("subscriber", func(ctx context.Context, c *goredis.Client) {
			sub := c.Subscribe(ctx, "c")
			defer sub.Close()
			for range 3 {
				message, err := sub.ReceiveTimeout(ctx, time.Second)
				if err != nil {
					return
				}
				m, ok := message.(*goredis.Message)
				if ok && m.Channel == "+switch-master" && len(strings.Split(m.Payload, " ")) < 5 {
					t.Errorf("a switch to %q", m.Payload)
				}
			}
		})
		var address []string
		ask("sentinel", func(ctx context.Context, c *goredis.Client) {
			s := goredis.NewSentinelClient(c.Options())
			defer s.Close()
			var err error
			if address, err = s.GetMasterAddrByName(ctx, "m").Result(); err == nil && len(address) != 2 {
				t.Errorf("%q: the address %q", text, address)
			}
		})
	})
}

var _ network.Protocol = (*frames)(nil)
