package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golock/locks/locktest/server"
)

// Verdict is what becomes of a request.
type Verdict = server.Verdict

// The verdicts.
const (
	Pass      = server.Pass
	LoseReply = server.LoseReply
	Lose      = server.Lose
	Hang      = server.Hang
)

// Proxy stands between clients and a server and makes faults.
type Proxy struct {
	*server.Proxy
	t      testing.TB
	server string

	mu      sync.Mutex
	judge   func(args []string) Verdict
	scripts []script // the script runs seen so far
}

// script is a script run: what came, and of which mode it is.
type script struct {
	raw  []byte
	mode string
}

// NewProxy starts one before a server. It passes everything on.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	p := &Proxy{t: t, server: s.Addr(), Proxy: server.NewProxy(t, s.Addr(), func() server.Wire { return wire{} })}
	p.Proxy.Judge(p.see)
	return p
}

// URL is that of a store behind the proxy.
func (p *Proxy) URL(options ...string) string {
	return server.WithOptions("redis://"+p.Addr(), options)
}

// Judge sets what decides about every request from now on. It is called by
// several goroutines.
func (p *Proxy) Judge(f func(args []string) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = f
}

func (p *Proxy) see(m server.Message) Verdict {
	_, args, _ := readRequest(bufio.NewReader(bytes.NewReader(m.Raw)))
	p.mu.Lock()
	if strings.HasPrefix(strings.ToLower(args[0]), "eval") {
		p.scripts = append(p.scripts, script{m.Raw, Mode(args)})
	}
	judge := p.judge
	p.mu.Unlock()
	if judge == nil {
		return Pass
	}
	return judge(args)
}

// Replay sends all script runs that were ever seen to the server again, or
// those of some modes, in their order, as a network that delivers late would.
func (p *Proxy) Replay(modes ...string) {
	p.t.Helper()
	p.mu.Lock()
	scripts := p.scripts
	p.mu.Unlock()
	c, err := net.Dial("tcp", p.server)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	for _, s := range scripts {
		if len(modes) > 0 && !slices.Contains(modes, s.mode) {
			continue
		}
		if _, err := c.Write(s.raw); err != nil {
			p.t.Fatal(err)
		}
	}
	// The server answers in order: after this they all have been run.
	if _, err := c.Write([]byte("ECHO golock-replayed\r\n")); err != nil {
		p.t.Fatal(err)
	}
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			p.t.Fatal(err)
		}
		if strings.Contains(line, "golock-replayed") {
			return
		}
	}
}

// wire is https://redis.io/docs/latest/develop/reference/protocol-spec/ ; of the
// replies it only knows that one has come.
type wire struct{}

func (wire) Begin() {}

func (wire) Request(r *bufio.Reader) (server.Message, error) {
	raw, _, err := readRequest(r)
	return server.Message{Raw: raw, IsRequest: true}, err
}

func (wire) Reply(r *bufio.Reader) (raw []byte, last bool, err error) {
	if _, err := r.Peek(1); err != nil {
		return nil, false, err
	}
	raw = make([]byte, r.Buffered())
	_, err = io.ReadFull(r, raw)
	return raw, true, err
}

// readRequest reads one command as clients send it: an array of strings.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	var b bytes.Buffer
	number := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || len(line) < 3 || line[0] != mark {
			return 0, fmt.Errorf("%q: %w", line, io.ErrUnexpectedEOF)
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number('*')
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number('$'); err != nil {
			break
		}
		text := make([]byte, size+2)
		_, err = io.ReadFull(r, text)
		b.Write(text)
		args = append(args, string(text[:size]))
	}
	if err == nil && len(args) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), args, err
}

// Mode is which of a store's steps a request is: join, renew, release, list, or
// "" if it is none.
func Mode(args []string) string {
	if !strings.HasPrefix(strings.ToLower(args[0]), "eval") || len(args) < 3 {
		return ""
	}
	keys, err := strconv.Atoi(args[2])
	if err != nil || len(args) <= 3+keys {
		return ""
	}
	return args[3+keys]
}
