package server

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// Verdict says what the proxy does with a request.
type Verdict int

// The verdicts.
const (
	Pass      Verdict = iota // forward the request, and the reply
	LoseReply                // forward the request, wait until the server has handled it, then close the connection
	Lose                     // close the connection instead of forwarding the request
	Hang                     // forward neither the request nor a reply
)

// Message is a message of a client.
type Message struct {
	Raw       []byte
	IsRequest bool   // the message is a request, about which the proxy decides
	Request   string // the text of the request
	Probe     []byte // sent after a request whose reply is lost; the server answers it after the request
}

// Wire cuts the two streams of a connection into messages. One goroutine reads requests, another one
// replies.
type Wire interface {
	// Request reads the next message of the client.
	Request(r *bufio.Reader) (Message, error)

	// Reply reads the next message of the server. last reports that the server has handled the
	// whole request and its probe.
	Reply(r *bufio.Reader) (raw []byte, last bool, err error)
}

// Proxy forwards messages between clients and a server, and makes faults. It does not understand TLS.
type Proxy struct {
	listen   net.Listener
	upstream string
	wire     func() Wire
	wg       sync.WaitGroup
	closed   chan struct{}

	mu       sync.Mutex
	judge    func(request string) Verdict
	refuse   bool
	thaw     chan struct{} // nil if the proxy is not frozen
	conns    map[net.Conn]bool
	requests []Message // the requests that have come so far
}

// NewProxy starts a proxy before HOST:PORT. It forwards everything.
func NewProxy(t testing.TB, upstream string, wire func() Wire) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listen: l, upstream: upstream, wire: wire, conns: map[net.Conn]bool{}, closed: make(chan struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		close(p.closed)
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is HOST:PORT.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Judge sets the function that decides about each request by its text; nil passes all. Several
// goroutines call the function.
func (p *Proxy) Judge(f func(request string) Verdict) { p.locked(func() { p.judge = f }) }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.locked(func() {
		for c := range p.conns {
			c.Close()
		}
	})
}

// Refuse makes the proxy close every new connection at once; with false it stops that.
func (p *Proxy) Refuse(yes bool) { p.locked(func() { p.refuse = yes }) }

// Freeze makes the proxy keep the messages of both directions.
func (p *Proxy) Freeze() {
	p.locked(func() {
		if p.thaw == nil {
			p.thaw = make(chan struct{})
		}
	})
}

// Thaw makes the proxy deliver the messages that it has kept.
func (p *Proxy) Thaw() {
	p.locked(func() {
		if p.thaw != nil {
			close(p.thaw)
			p.thaw = nil
		}
	})
}

// Requests returns the requests that have come.
func (p *Proxy) Requests() (all []Message) {
	p.locked(func() { all = p.requests })
	return all
}

func (p *Proxy) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve passes on one connection until either end closes.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	refuse := false
	p.locked(func() { refuse = p.refuse })
	if refuse {
		return
	}
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{proxy: p, client: client, server: server, wire: p.wire()}
	p.keep(l, true)
	defer p.keep(l, false)
	p.wg.Go(func() {
		defer client.Close()
		defer server.Close()
		l.replies()
	})
	l.requests()
}

func (p *Proxy) keep(l *link, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{l.client, l.server} {
		if yes {
			p.conns[c] = true
		} else {
			delete(p.conns, c)
		}
	}
	select {
	case <-p.closed: // the last Cut may have come too early
		l.client.Close()
		l.server.Close()
	default:
	}
}

func (p *Proxy) see(m Message) Verdict {
	var judge func(string) Verdict
	p.locked(func() {
		p.requests = append(p.requests, m)
		judge = p.judge
	})
	if judge == nil {
		return Pass
	}
	return judge(m.Request)
}

// hold waits while the proxy is frozen, and reports whether to go on.
func (p *Proxy) hold() bool {
	for {
		var thaw chan struct{}
		p.locked(func() { thaw = p.thaw })
		if thaw == nil {
			return true
		}
		select {
		case <-thaw:
		case <-p.closed:
			return false
		}
	}
}

// link is one connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	wire           Wire
	losing         atomic.Bool // replies are dropped, and the connection is closed after the last one
}

func (l *link) requests() {
	for r := bufio.NewReader(l.client); ; {
		m, err := l.wire.Request(r)
		if err != nil {
			return
		}
		verdict := Pass
		if m.IsRequest {
			verdict = l.proxy.see(m)
		}
		switch verdict {
		case Lose:
			return
		case Hang:
			continue
		}
		if !l.proxy.hold() {
			return
		}
		if verdict == LoseReply {
			m.Raw = slices.Concat(m.Raw, m.Probe)
			l.losing.Store(true)
		}
		if _, err := l.server.Write(m.Raw); err != nil {
			return
		}
	}
}

func (l *link) replies() {
	for r := bufio.NewReader(l.server); ; {
		raw, last, err := l.wire.Reply(r)
		if err != nil {
			return
		}
		if l.losing.Load() {
			if last {
				return
			}
			continue
		}
		if !l.proxy.hold() {
			return
		}
		if _, err := l.client.Write(raw); err != nil {
			return
		}
	}
}
