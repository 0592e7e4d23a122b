package main

import (
	"io"
	"net"
	"testing"
)

// A round trip is counted when somebody waits for an answer, and never for packets that are sent without waiting.
func TestTripsAreCounted(t *testing.T) {
	server := get(net.Listen("tcp", "127.0.0.1:0"))
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	n := &counted{transport: "tcp", address: server.Addr().String()}
	defer n.close()
	w := n.newWire()
	client := get(net.Dial("tcp", w.addr()))
	defer client.Close()
	exchange := func(requests int) {
		for range requests {
			get(client.Write([]byte("x")))
		}
		get(io.ReadFull(client, make([]byte, requests)))
	}
	exchange(1)
	if trips := w.trips(now()); trips != 2 {
		t.Errorf("connecting and an answer: %g round trips, want 2", trips)
	}
	n.restart()
	exchange(3)
	exchange(1)
	if trips := w.trips(now()); trips != 2 {
		t.Errorf("two exchanges: %g round trips, want 2", trips)
	}
}
