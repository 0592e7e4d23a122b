//go:build integration

package campaign_test

import (
	"net"
	"sync"
	"time"
)

// This file pins nothing. A link is one host's way to a server, and the
// network's faults: it knows bytes, not messages, so that it fails anywhere in
// one. What was held up comes through afterwards, as a network delivers late.

type link struct {
	listener net.Listener
	server   string

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]bool
	up      bool // requests get through
	down    bool // replies do
	refuse  bool
	slow    time.Duration
	closed  bool
	wait    sync.WaitGroup
}

func newLink(server string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{listener: l, server: server, conns: map[net.Conn]bool{}, up: true, down: true}
	k.changed = sync.NewCond(&k.mu)
	k.wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			k.wait.Go(func() { k.serve(c) })
		}
	})
	return k, nil
}

func (k *link) addr() string { return k.listener.Addr().String() }

// set changes what gets through.
func (k *link) set(up, down, refuse bool, slow time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.up, k.down, k.refuse, k.slow = up, down, refuse, slow
	k.changed.Broadcast()
}

func (k *link) heal() { k.set(true, true, false, 0) }

// cut ends all connections.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		c.Close()
	}
}

func (k *link) close() {
	k.mu.Lock()
	k.closed = true
	k.changed.Broadcast()
	k.mu.Unlock()
	k.listener.Close()
	k.cut()
	k.wait.Wait()
}

// pass returns when bytes of one direction may go on.
func (k *link) pass(open *bool) bool {
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	if slow > 0 {
		time.Sleep(slow) // the delay
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for !*open && !k.closed {
		k.changed.Wait()
	}
	return !k.closed
}

func (k *link) serve(client net.Conn) {
	defer client.Close()
	k.mu.Lock()
	refuse := k.refuse
	k.mu.Unlock()
	if refuse || !k.pass(&k.up) {
		return
	}
	server, err := net.Dial("tcp", k.server)
	if err != nil {
		return
	}
	defer server.Close()
	k.mu.Lock()
	k.conns[client], k.conns[server] = true, true
	closed := k.closed
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.conns, client)
		delete(k.conns, server)
	}()
	if closed {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.copy(server, client, &k.up) })
	both.Go(func() { k.copy(client, server, &k.down) })
	both.Wait()
}

func (k *link) copy(to, from net.Conn, open *bool) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if !k.pass(open) || err != nil { // the end of a connection takes the same way
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
