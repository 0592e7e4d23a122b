package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Verdict is what becomes of a request.
type Verdict int

// The verdicts.
const (
	Pass      Verdict = iota // forward it, and the reply
	LoseReply                // forward it, then close the connection instead of replying
	Lose                     // close the connection instead of forwarding it
	Hang                     // neither
)

// Proxy stands between clients and a server and makes faults.
type Proxy struct {
	t      testing.TB
	listen net.Listener
	server string
	wg     sync.WaitGroup

	mu      sync.Mutex
	judge   func(args []string) Verdict
	refuse  bool
	conns   map[net.Conn]bool
	scripts [][]byte // the script runs seen so far, as they came
	count   int      // requests
}

// NewProxy starts one before a server. It passes everything on.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listen: l, server: s.Addr(), conns: map[net.Conn]bool{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// URL is that of a store behind the proxy.
func (p *Proxy) URL(options ...string) string {
	return withOptions("redis://"+p.listen.Addr().String(), options)
}

// Judge sets what decides about every request from now on. It is called by
// several goroutines.
func (p *Proxy) Judge(f func(args []string) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = f
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Refuse makes the proxy close every new connection at once, or stop that.
func (p *Proxy) Refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = yes
}

// Requests is how many have come.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Replay sends all script runs that were ever seen to the server again, in
// their order, as a network that delivers late would.
func (p *Proxy) Replay() {
	p.t.Helper()
	p.mu.Lock()
	scripts := p.scripts
	p.mu.Unlock()
	c, err := net.Dial("tcp", p.server)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	for _, request := range scripts {
		if _, err := c.Write(request); err != nil {
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

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		server, err := net.Dial("tcp", p.server)
		if refuse || err != nil {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		p.wg.Add(1)
		go p.serve(client, server)
	}
}

// serve passes on one connection until either end closes.
func (p *Proxy) serve(client, server net.Conn) {
	defer p.wg.Done()
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	end := func() {
		client.Close()
		server.Close()
	}
	var lose sync.Once
	losing := make(chan struct{}) // closed when the next reply is to be lost
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		defer end()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			select {
			case <-losing:
				return
			default:
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	defer func() {
		end()
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
	}()
	for r := bufio.NewReader(client); ; {
		raw, args, err := readRequest(r)
		if err != nil {
			return
		}
		switch p.see(raw, args) {
		case Lose:
			return
		case Hang:
			continue
		case LoseReply:
			lose.Do(func() { close(losing) })
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}

func (p *Proxy) see(raw []byte, args []string) Verdict {
	p.mu.Lock()
	p.count++
	if strings.HasPrefix(strings.ToLower(args[0]), "eval") {
		p.scripts = append(p.scripts, raw)
	}
	judge := p.judge
	p.mu.Unlock()
	if judge == nil {
		return Pass
	}
	return judge(args)
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
