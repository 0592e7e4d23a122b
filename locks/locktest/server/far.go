package server

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Way is a way to a server that is far away.
type Way struct {
	Delay  time.Duration // the delay of each direction
	Jitter time.Duration // the delay differs by at most this much
	Loss   float64       // the fraction of pieces that get lost: TCP sends them again after a while
}

// resendAfter is the time after which TCP sends a lost piece again, in addition to the round trip.
const resendAfter = 200 * time.Millisecond

// FarProxy forwards connections with a delay. Connecting takes a round trip too.
type FarProxy struct {
	listen   net.Listener
	upstream string
	way      Way
	wg       sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	conns  map[net.Conn]bool
	closed bool
}

// NewFarProxy starts a proxy before HOST:PORT.
func NewFarProxy(t testing.TB, upstream string, way Way) *FarProxy {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &FarProxy{listen: l, upstream: upstream, way: way, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *FarProxy) close() {
	p.listen.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.wg.Wait()
}

// Addr is HOST:PORT.
func (p *FarProxy) Addr() string { return p.listen.Addr().String() }

// Cut closes all connections, and returns how many there were.
func (p *FarProxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	return len(p.conns) / 2
}

func (p *FarProxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve passes on one connection until either end closes.
func (p *FarProxy) serve(client net.Conn) {
	defer client.Close()
	time.Sleep(p.delay() + p.delay())
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	defer p.forget(client, server)
	var both sync.WaitGroup
	both.Go(func() { p.pass(client, server) })
	both.Go(func() { p.pass(server, client) })
	both.Wait()
}

func (p *FarProxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.closed
}

func (p *FarProxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// delay returns the time that a piece takes on its way.
func (p *FarProxy) delay() time.Duration {
	d := p.way.Delay
	if p.way.Jitter > 0 {
		d += rand.N(2*p.way.Jitter) - p.way.Jitter
	}
	if rand.Float64() < p.way.Loss {
		d += 2*p.way.Delay + resendAfter
	}
	return d
}

// piece is a part of a stream, as one Read has returned it.
type piece struct {
	bytes []byte
	due   time.Time
}

// pass delivers the pieces of a stream in order, each when it is due. The end of the stream is delayed too.
func (p *FarProxy) pass(from, to net.Conn) {
	pieces := make(chan piece, 1000)
	p.wg.Go(func() {
		defer close(pieces)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			pieces <- piece{b[:n], time.Now().Add(p.delay())}
			if err != nil {
				return
			}
		}
	})
	defer to.Close()
	for one := range pieces {
		time.Sleep(time.Until(one.due))
		if _, err := to.Write(one.bytes); err != nil {
			from.Close()
			for range pieces { // until the reader has ended
			}
			return
		}
	}
}
