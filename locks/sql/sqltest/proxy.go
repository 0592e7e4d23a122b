package sqltest

import (
	"bufio"
	"net"
	"sync"
	"testing"
	"time"
)

// Verdict is what becomes of a request.
type Verdict int

// The verdicts.
const (
	Pass      Verdict = iota // forward it, and the reply
	LoseReply                // forward it, wait until the server has done it all, then close the connection instead of replying
	Lose                     // close the connection instead of forwarding it
	Hang                     // neither
)

// Upstream is what a proxy stands before: a server or a pooler.
type Upstream interface {
	Addr() string
	scheme() string
}

// Proxy stands between clients and a server and makes faults. It does not
// understand TLS: it tells PostgreSQL's clients that there is none.
type Proxy struct {
	listen   net.Listener
	upstream Upstream
	wg       sync.WaitGroup
	closed   chan struct{}

	mu                       sync.Mutex
	judge                    func(statement string) Verdict
	refuse                   bool
	thaw                     chan struct{} // nil: it is not frozen
	requestDelay, replyDelay time.Duration
	conns                    map[net.Conn]bool
	count                    int // statements
}

// NewProxy starts one. It passes everything on.
func NewProxy(t testing.TB, up Upstream) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listen: l, upstream: up, conns: map[net.Conn]bool{}, closed: make(chan struct{})}
	p.wg.Add(1)
	go p.accept()
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

// URL is that of a store behind the proxy, with the password.
func (p *Proxy) URL(database string, options ...string) string {
	return tcpURL(p.upstream.scheme(), "golock", p.Addr(), database, options)
}

// Judge sets what decides about every request from now on; nil passes all. It
// is called by several goroutines with the request's text, which may be several
// statements: of a query or, at PostgreSQL, of what is to be prepared. Other
// requests pass.
func (p *Proxy) Judge(f func(statement string) Verdict) {
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

// Freeze makes the proxy keep what comes, in both directions.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw == nil {
		p.thaw = make(chan struct{})
	}
}

// Thaw makes it deliver that.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

// Delay makes every request, and the first part of every reply, wait.
func (p *Proxy) Delay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestDelay, p.replyDelay = request, reply
}

// Requests is how many statements have come.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

// serve passes on one connection until either end closes.
func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	server, err := net.Dial("tcp", p.upstream.Addr())
	if refuse || err != nil {
		client.Close()
		if server != nil {
			server.Close()
		}
		return
	}
	l := &link{proxy: p, client: client, server: server}
	l.wire = newWire(p.upstream.scheme())
	p.keep(l, true)
	end := func() {
		client.Close()
		server.Close()
	}
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		defer end()
		l.replies()
	}()
	defer p.keep(l, false)
	defer end()
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

func (p *Proxy) see(statement string) Verdict {
	p.mu.Lock()
	p.count++
	judge := p.judge
	p.mu.Unlock()
	if judge == nil {
		return Pass
	}
	return judge(statement)
}

// hold waits as the faults of the moment say, and reports whether to go on.
func (p *Proxy) hold(delay func(*Proxy) time.Duration) bool {
	p.mu.Lock()
	d := delay(p)
	p.mu.Unlock()
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closed:
			return false
		}
	}
	for {
		p.mu.Lock()
		thaw := p.thaw
		p.mu.Unlock()
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
	wire           wire

	mu     sync.Mutex
	asked  bool // the next part of a reply is its first
	losing bool // replies are dropped, and after the next one all ends
}

func (l *link) requests() {
	for r := bufio.NewReader(l.client); ; {
		m, err := l.wire.request(r)
		if err != nil {
			return
		}
		if m.answer != nil { // the proxy's own
			if _, err := l.client.Write(m.answer); err != nil {
				return
			}
			continue
		}
		verdict := Pass
		if m.isStatement {
			verdict = l.proxy.see(m.statement)
		}
		switch verdict {
		case Lose:
			return
		case Hang:
			continue
		}
		if !l.proxy.hold(func(p *Proxy) time.Duration { return p.requestDelay }) {
			return
		}
		l.mu.Lock()
		l.asked = true
		l.losing = l.losing || verdict == LoseReply
		l.mu.Unlock()
		if m.isStatement {
			l.wire.begin()
		}
		if _, err := l.server.Write(m.raw); err != nil {
			return
		}
	}
}

func (l *link) replies() {
	for r := bufio.NewReader(l.server); ; {
		raw, last, err := l.wire.reply(r)
		if err != nil {
			return
		}
		l.mu.Lock()
		first, losing := l.asked, l.losing
		l.asked = false
		l.mu.Unlock()
		if losing {
			if last {
				return
			}
			continue
		}
		delay := func(p *Proxy) time.Duration {
			if first {
				return p.replyDelay
			}
			return 0
		}
		if !l.proxy.hold(delay) {
			return
		}
		if _, err := l.client.Write(raw); err != nil {
			return
		}
	}
}
