package main

import (
	"slices"
	"strings"
	"time"
)

// heldFor is how long a slot has been held when it is handed on. Clients that keep a connection only
// because they have just used it have closed it.
const heldFor = 1200 * time.Millisecond

// The names of the metrics of round trips.
const (
	startUsed = "start, used name"
	startNew  = "start, new name"
	finishNew = "whole run, new name"
	busy      = "busy, -n"
	handOff   = "hand-off"
)

var tripMetrics = []metric{{startUsed, ""}, {startNew, ""}, {finishNew, ""}, {busy, ""}, {handOff, ""}}

// measureTrips counts round trips. beside is the tool without a network.
func measureTrips(b *bench, beside *tool, _ int) sample {
	s := sample{}
	transport, address, shown := b.servers.endpoint(beside.name)
	n := &counted{transport: transport, address: address}
	defer n.close()
	far, w := across(beside, n, shown)

	// The first run of all may make a table.
	b.start(beside.run(b.newLock(), "/bin/true"))[0].succeed()
	l := b.newLock()
	for i, name := range []string{startNew, startUsed} {
		n.restart()
		r := b.start(far.run(l, b.section(l, i)...))[0].succeed()
		records := readRecords(far, l, i+1)
		s[name] = w.trips(records[i].start)
		if name == startNew {
			s[finishNew] = w.trips(r.ended)
		}
	}
	if refused := far.withFlags("-n", "-E", "0"); refused != nil {
		holder := b.newQueue(beside)
		n.restart()
		r := b.start(refused.run(holder.lock, "/bin/false"))[0].succeed()
		s[busy] = w.trips(r.ended)
		holder.finish()
	}

	q := b.newQueue(far)
	var next *wire
	q.tool, next = across(beside, n, shown)
	q.add(b, 1)
	time.Sleep(heldFor)
	n.restart()
	records, _ := q.finish()
	s[handOff] = next.trips(records[1].start)
	return s
}

// withFlags is golock with more flags, nil for other tools.
func (t *tool) withFlags(flags ...string) *tool {
	last := len(t.words) - 1
	if t.words[last] != "--" {
		return nil
	}
	more := *t
	more.words = slices.Concat(t.words[:last], flags, t.words[last:])
	return &more
}

// across is a tool that reaches its server over a wire of its own. shown is the server's address on its
// command line. Those who wait are counted without the network.
func across(t *tool, n *counted, shown string) (*tool, *wire) {
	w := n.newWire()
	far := *t
	far.words = slices.Clone(t.words)
	for i, word := range far.words {
		far.words[i] = strings.ReplaceAll(word, shown, w.addr())
	}
	return &far, w
}
