package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// constants are what the estimate is made of, of the Redis store.
type constants struct {
	nameKiB    float64 // of the server's memory, a name that is held
	renewalCPU float64 // ms of the server's

	tickets     int     // waiters on one name
	ticketKiB   float64 // of the server's memory, a waiter with a connection
	comingCPU   float64 // ms of the server's for one that comes, to when it listens
	looks       float64 // commands of a waiter in TTL/3
	lookCPU     float64 // ms of the server's for each
	connections float64 // of a golock that waits or holds
	grantCPU    float64 // ms of the server's for a grant of the long line
	grants      float64 // a second, from the long line

	connectionKiB float64 // of the server's memory, a connection that is silent
}

// scaleTickets has very many wait on one name of a Redis server, in a few
// processes: more than there could be processes here. Then it reckons what
// that means for a fleet.
func (b *bench) scaleTickets() error {
	srv, err := b.startServer("--maxclients", "18000")
	if err != nil {
		return err
	}
	defer srv.stop()
	k := &b.constants
	if err := b.countConnections(srv); err != nil {
		return err
	}

	const ttl = 30 // seconds: golock's own
	l, err := b.place("tickets")
	if err != nil {
		return err
	}
	h, err := b.hold(srv.golock(b, "--ttl", "1h"), l)
	if err != nil {
		return err
	}
	empty, err := srv.memory()
	if err != nil {
		return err
	}
	k.tickets = b.plan.scale.tickets
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && limit.Max < uint64(k.tickets)+1000 {
		k.tickets = int(limit.Max) / 2 // each is a connection of the server
	}
	k.tickets -= k.tickets % holders
	came, err := srv.work()
	if err != nil {
		return err
	}
	begun := now()
	var all []*ticketsProcess
	for range holders {
		t, err := b.startTickets("wait", srv.url(l), fmt.Sprintf("%ds", ttl), l.name, strconv.Itoa(k.tickets/holders))
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	for _, t := range all {
		if _, err := t.told(); err != nil {
			return err
		}
	}
	err = b.until("all tickets are queued", 100*time.Millisecond, func() (bool, error) {
		n, err := srv.listening(l)
		return n >= k.tickets, err
	})
	if err != nil {
		return err
	}
	queued := now() - begun
	there, err := srv.work()
	if err != nil {
		return err
	}
	k.comingCPU = there.since(came).cpu / float64(k.tickets)
	if err := b.pause(b.plan.scale.settle); err != nil {
		return err
	}
	full, err := srv.memory()
	if err != nil {
		return err
	}
	k.ticketKiB = (full - empty) / float64(k.tickets)

	clients := func() (sum float64, err error) {
		for _, t := range all {
			cpu, err := t.cpu()
			if err != nil {
				return 0, err
			}
			sum += cpu
		}
		return sum, nil
	}
	look := func() (work, float64, error) {
		w, err := srv.work()
		if err != nil {
			return w, 0, err
		}
		cpu, err := clients()
		return w, cpu, err
	}
	// Who came together looks together, once in TTL/3: the window begins between.
	for tries := 0; tries < ttl; tries++ {
		before, err := srv.work()
		if err != nil {
			return err
		}
		if err := b.pause(1); err != nil {
			return err
		}
		if after, err := srv.work(); err != nil {
			return err
		} else if after.since(before).transactions <= k.tickets/100 {
			break
		}
	}
	before, used, err := look()
	if err != nil {
		return err
	}
	begun = now()
	if err := b.pause(ttl / 3); err != nil {
		return err
	}
	lasted := now() - begun
	after, usedAfter, err := look()
	if err != nil {
		return err
	}
	idle := after.since(before)
	thirds := lasted / 1e3 / (ttl / 3)
	// A process that looks for many at once connects anew for some of them, which
	// golock has no reason to: only the scripts count.
	k.looks = float64(idle.transactions) / float64(k.tickets) / thirds
	k.lookCPU = idle.cpu / float64(max(idle.transactions, 1))

	h.release()
	if _, err := h.succeed(); err != nil {
		return err
	}
	var granted []float64
	for _, t := range all {
		got, err := t.finish()
		if err != nil {
			return err
		}
		granted = append(granted, got.Granted...)
	}
	end, err := srv.work()
	if err != nil {
		return err
	}
	slices.Sort(granted)
	k.grantCPU = end.since(after).cpu / float64(k.tickets)
	k.grants = float64(len(granted)-1) / (granted[len(granted)-1] - granted[0]) * 1e3

	s := section{
		title: fmt.Sprintf("%d waiters on one name of a Redis server", k.tickets),
		how: fmt.Sprintf("In %d processes, which have a connection for each waiter; watched for %d s with the default TTL of %d s. Then all are let through, without a command.",
			holders, ttl/3, ttl),
		head: []string{"what", "measured"},
		rows: [][]string{
			{"queued, all", fmt.Sprintf("%.1f s", queued/1e3)},
			{"server: CPU for each that comes: connection, join, subscription", fmt.Sprintf("%.3f ms", k.comingCPU)},
			{"server: memory for each waiter, its connection included", fmt.Sprintf("%.2f KiB", k.ticketKiB)},
			{"server: commands of a waiter in TTL/3", fmt.Sprintf("%.3f", k.looks)},
			{"server: CPU for each of them", fmt.Sprintf("%.4f ms", k.lookCPU)},
			{"server: CPU while all wait", fmt.Sprintf("%.1f ms/s", idle.cpu/lasted*1e3)},
			{"waiters: CPU of all while they wait", fmt.Sprintf("%.1f ms/s", (usedAfter-used)/lasted*1e3)},
			{"grants from this line", fmt.Sprintf("%.0f /s", k.grants)},
			{"server: CPU for each grant", fmt.Sprintf("%.3f ms", k.grantCPU)},
			{"server: requests for each grant", fmt.Sprintf("%.2f", float64(end.since(after).statements)/float64(k.tickets))},
			{"connections of a golock that waits or holds", fmt.Sprintf("%.1f", k.connections)},
			{"server: memory for a silent connection", fmt.Sprintf("%.2f KiB", k.connectionKiB)},
		},
	}
	b.sections = append(b.sections, s)
	b.note(fmt.Sprintf("scale: redis, %d tickets, commands per waiter and TTL/3", k.tickets), "", []float64{k.looks})
	b.note(fmt.Sprintf("scale: redis, %d tickets, memory by waiter", k.tickets), "KiB", []float64{k.ticketKiB})
	b.target(fmt.Sprintf("redis: commands per waiter and TTL/3 while %d wait", k.tickets), oneLook, 0, "", k.looks)
	if k.renewalCPU > 0 {
		b.sections = append(b.sections, k.estimate())
	}
	return nil
}

// countConnections measures how many a golock has, as a process, and what the
// server keeps for one.
func (b *bench) countConnections(srv *server) error {
	const n = 16
	c, err := b.crowd(srv.golock(b), srv.golock(b), n)
	if err != nil {
		return err
	}
	if err := b.pause(b.plan.scale.settle); err != nil {
		return err
	}
	text, err := srv.client.Info(context.Background(), "clients").Result()
	if err != nil {
		return err
	}
	b.constants.connections = (infoNumber(text, "connected_clients") - 1) / (n + 1) // one is the harness'
	if _, err := c.finish(); err != nil {
		return err
	}

	const silent = 200
	before, err := srv.memory()
	if err != nil {
		return err
	}
	for range silent {
		conn, err := net.Dial("tcp", srv.address)
		if err != nil {
			return err
		}
		defer conn.Close()
	}
	err = b.until("the server has accepted all", 10*time.Millisecond, func() (bool, error) {
		text, err := srv.client.Info(context.Background(), "clients").Result()
		return infoNumber(text, "connected_clients") > silent, err
	})
	if err != nil {
		return err
	}
	if err := b.pause(settle); err != nil { // a young one has larger buffers
		return err
	}
	after, err := srv.memory()
	b.constants.connectionKiB = (after - before) / silent
	return err
}

// estimate reckons what a fleet costs one server.
func (k *constants) estimate() section {
	const (
		hosts      = 10000
		third      = 10.0  // seconds, of the default TTL
		maxClients = 10000 // Redis' default
	)
	renewals := hosts / third
	looks := hosts * k.looks / third
	busy := func(perSecond, cpu float64) string { return fmt.Sprintf("%.1f %% of a core", perSecond*cpu/10) }
	full := func(cpu float64) string { return fmt.Sprintf("%.0f hosts", 1e3/cpu*third) }
	return section{
		title: fmt.Sprintf("On paper: %d hosts and one Redis server", hosts),
		how: "From what was measured above, on this machine, with the default TTL of 30 s: a holder renews and a waiter looks once in 10 s. " +
			"Each host runs one golock. Nothing but golock uses the server, and it has a core of its own.",
		head: []string{"", fmt.Sprintf("%d hosts hold, each its own name", hosts), fmt.Sprintf("%d hosts wait for one name", hosts)},
		rows: [][]string{
			{"commands a second while nothing happens", fmt.Sprintf("%.0f", renewals), fmt.Sprintf("%.0f", looks)},
			{"the server's CPU for them", busy(renewals, k.renewalCPU), busy(looks, k.lookCPU)},
			{"that would fill a core at", full(k.renewalCPU), full(k.lookCPU * max(k.looks, 1e-9))},
			{"the server's memory", fmt.Sprintf("%.0f MiB", hosts*(k.nameKiB+k.ticketKiB)/1024), fmt.Sprintf("%.0f MiB", hosts*(k.ticketKiB+k.connectionKiB*(k.connections-1))/1024)},
			{"connections", fmt.Sprintf("%.0f", hosts*k.connections), fmt.Sprintf("%.0f", hosts*k.connections)},
			{fmt.Sprintf("Redis' own limit (maxclients %d) is reached at", maxClients), fmt.Sprintf("%.0f hosts", maxClients/k.connections), fmt.Sprintf("%.0f hosts", maxClients/k.connections)},
			{"the last one's turn comes after", "-", fmt.Sprintf("%.0f s and the time of %d commands", hosts/k.grants, hosts)},
		},
		notes: []string{
			fmt.Sprintf("What breaks first is the number of connections: raise `maxclients` and the server's limit of open files to %.0f and more.", 1.2*hosts*k.connections),
			fmt.Sprintf("Next is the moment in which all come at once, after an outage or at a full hour: %d joins with their connections are %.1f s of a core; "+
				"a random delay in the timers (systemd's RandomizedDelaySec) spreads them.", hosts, hosts*k.comingCPU/1e3),
		},
	}
}
