package main

import (
	"net"
	"sync"
	"time"
)

// wireDelay is the delay of each direction. It is longer than a busy machine takes between two packets
// that are sent together.
const wireDelay = 100 * time.Millisecond

// halfTrip is the way of one packet.
const halfTrip = 0.5

// counted is a network between processes and a server that counts round trips. It is a logical
// clock (Lamport, https://doi.org/10.1145/359545.359563): each packet takes half a round trip, and
// what the processes and the server do takes no time. So the speed of the machine does not count.
// Packets are really delayed, too: one that is sent without waiting for an answer must be on
// its way before the answer comes.
type counted struct {
	transport string // how the tool reaches the server: tcp or unix
	address   string

	mu     sync.Mutex // guards what follows, and the wires
	turn   int        // how often the clocks were set to zero
	server float64    // the time at the server
	wires  []*wire
}

// wire is a proxy between one process and the server.
type wire struct {
	*counted
	listen net.Listener
	clock  float64 // the time at the process
	log    []moment
}

// moment is the time at a process from a point of CLOCK_MONOTONIC on, in ms.
type moment struct{ from, clock float64 }

// newWire starts a proxy on loopback.
func (n *counted) newWire() *wire {
	w := &wire{counted: n, listen: get(net.Listen("tcp", "127.0.0.1:0"))}
	n.wires = append(n.wires, w)
	go w.accept()
	return w
}

func (n *counted) close() {
	for _, w := range n.wires {
		w.listen.Close()
	}
}

// restart sets all clocks to zero.
func (n *counted) restart() {
	n.locked(func() {
		n.turn++
		n.server = 0
		for _, w := range n.wires {
			w.clock, w.log = 0, nil
		}
	})
}

func (n *counted) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (w *wire) addr() string { return w.listen.Addr().String() }

// trips is how many round trips the process had waited for at a point of CLOCK_MONOTONIC.
func (w *wire) trips(at float64) (trips float64) {
	w.locked(func() {
		for _, m := range w.log {
			if m.from <= at {
				trips = m.clock
			}
		}
	})
	return trips
}

func (w *wire) accept() {
	for {
		client, err := w.listen.Accept()
		if err != nil {
			return
		}
		go w.serve(client)
	}
}

// link is one connection.
type link struct {
	*wire
	opened    time.Time // when the server has taken the connection, a round trip after the process asked for it
	connected stamp     // the time of that
	turn      int       // when the last request came
	clock     float64   // the time at the server then
}

// serve passes on one connection. The process could send its first request after the TCP handshake, for which
// the server needs no accept: so a greeting of the server is half a round trip behind that.
func (w *wire) serve(client net.Conn) {
	l := &link{wire: w, opened: time.Now().Add(2 * wireDelay)}
	l.connected = l.departs()
	l.connected.clock += 2 * halfTrip
	requests := l.read(client, l.departs)
	time.Sleep(time.Until(l.opened))
	server, err := net.Dial(w.transport, w.address)
	if err != nil {
		client.Close()
		return
	}
	l.reaches(l.connected)
	go write(client, l.read(server, l.answers), l.returns)
	write(server, requests, l.arrivesAtServer)
}

// stamp is the time of a packet when it was sent, and what turn that was.
type stamp struct {
	turn  int
	clock float64
}

// departs gives the stamp of a request.
func (l *link) departs() (s stamp) {
	l.locked(func() { s = stamp{l.counted.turn, l.wire.clock} })
	if s.turn == l.connected.turn {
		s.clock = max(s.clock, l.connected.clock)
	}
	return s
}

func (l *link) arrivesAtServer(s stamp) { l.reaches(stamp{s.turn, s.clock + halfTrip}) }

// reaches notes the time at the server.
func (l *link) reaches(s stamp) {
	l.locked(func() {
		if s.turn != l.counted.turn {
			return
		}
		if l.turn != s.turn {
			l.turn, l.clock = s.turn, 0
		}
		l.clock = max(l.clock, s.clock)
		l.server = max(l.server, l.clock)
	})
}

// answers gives the stamp of an answer. If nothing was asked since the clocks were set to zero another
// process is the cause of it.
func (l *link) answers() (s stamp) {
	l.locked(func() {
		s = stamp{l.counted.turn, l.server}
		if l.turn == s.turn {
			s.clock = l.clock
		}
	})
	return s
}

// returns notes that an answer is at the process.
func (l *link) returns(s stamp) {
	l.locked(func() {
		if s.turn == l.counted.turn {
			l.wire.clock = max(l.wire.clock, s.clock+halfTrip)
			l.log = append(l.log, moment{now(), l.wire.clock})
		}
	})
}

// packet is what was read at once. An empty one is the end of the connection.
type packet struct {
	data    []byte
	stamp   stamp
	arrives time.Time
}

// read reads until the connection ends.
func (l *link) read(from net.Conn, departs func() stamp) <-chan packet {
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 1<<16)
			n, err := from.Read(data)
			packets <- packet{data[:n], departs(), later(time.Now(), l.opened).Add(wireDelay)}
			if err != nil {
				return
			}
		}
	}()
	return packets
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// write delivers packets when they arrive. It closes the connection at the end.
func write(to net.Conn, packets <-chan packet, arrives func(stamp)) {
	defer to.Close()
	for p := range packets {
		time.Sleep(time.Until(p.arrives))
		if len(p.data) > 0 {
			arrives(p.stamp)
			_, _ = to.Write(p.data) // if that fails, the reader sees it
		}
	}
}
