package main

import (
	"errors"
	"fmt"
	"slices"
)

// scaleLine measures what waiting and a grant cost as the line of one name
// grows, everyone a process.
func (b *bench) scaleLine() error {
	stores, err := b.scaleStores()
	if err != nil {
		return err
	}
	defer stopStores(stores)
	p := b.plan.scale
	idle := section{
		title: "Waiting, while nothing happens",
		how: fmt.Sprintf("Some wait behind a holder, each a process; they are watched for %d s, beginning %d s after the last was queued. Queued: how long it took "+
			"from one to the next, some on their way at a time. Requests are commands on Redis and statements on MariaDB; PostgreSQL does not tell. A wake-up is a context switch. TTL %d s.",
			p.ttl/3, p.settle, p.ttl),
		head: []string{"tool", "waiting", "queued ms each", "server cpu ms/s", "requests per waiter and TTL/3", "waiters cpu ms/s", "wake-ups per waiter and s", "RSS each MiB", "private each MiB"},
	}
	grants := section{
		title: "A grant, as the line grows",
		how: "The same line is let go, and everyone runs a command that notes the time. From the holder's end to the last one's, by the number of grants: a gap is from the end of one command to " +
			"the start of the next. CPU of the clients is that of all processes that waited and their guards, with their commands, from then on.",
		head: []string{"tool", "waiting", "rounds", "gap ms median", "p90", "max", "grants/s", "server cpu ms per grant", "requests per grant", "connections per grant", "clients cpu ms per grant"},
	}
	for _, s := range stores {
		if err := b.scaleStore(s, &idle, &grants); err != nil {
			return err
		}
	}
	idle.notes = append(idle.notes, tellsNote)
	b.sections = append(b.sections, idle, grants)
	return nil
}

// scaleStore adds the rows of one store. A line that does not stand, because
// some of it end, is the last of its store and a row that says so.
func (b *bench) scaleStore(s *scaleStore, idle, grants *section) error {
	p := b.plan.scale
	golock := s.waiting.isGolock()
	crowds := s.upTo(p.crowds)
	var first, last []float64 // what a grant costs the server, or without one the clients
	reached := 0
	for i, n := range crowds {
		var gaps, rate, server, requests, connections, clients []float64
		for round := range p.rounds[i] {
			begun := now()
			c, err := b.crowd(s.holding, s.waiting, n)
			if err == nil && round == 0 && golock && (i == 0 || i == len(crowds)-1) {
				err = b.scaleIdle(idle, s, c, (now()-begun)/float64(n))
			}
			var spent work
			var records []record
			if err == nil {
				spent, records, err = b.scaleDrain(s, c)
			}
			switch {
			case errors.Is(err, errStopped) || (err != nil && (c == nil || i == 0)):
				return fmt.Errorf("%s, %d waiting: %w", s.name, n, err)
			case err != nil:
				c.kill()
				grants.rows = append(grants.rows, append([]string{s.name, count(n)}, slices.Repeat([]string{"-"}, len(grants.head)-2)...))
				grants.notes = append(grants.notes, fmt.Sprintf("%s with %d waiting did not stand: %v; last was printed: %s", s.name, n, err, b.lastLine()))
				b.target(fmt.Sprintf("%s: lines of %d that did not stand", s.scheme, n), 0, 0, "", 1)
				return nil
			}
			each := float64(n + 1)
			for k := 1; k < len(records); k++ {
				gaps = append(gaps, records[k].start-records[k-1].end)
			}
			rate = append(rate, 1e3*float64(n)/(records[n].end-records[0].end))
			server, requests = append(server, spent.cpu/each), append(requests, float64(spent.statements)/each)
			connections, clients = append(connections, float64(spent.connections)/each), append(clients, c.cpu/float64(n))
		}
		cost, both := clients, clients
		if s.server > 0 {
			cost, both = server, sum(clients, server)
		}
		if last, reached = cost, n; i == 0 {
			first = cost
		}
		grants.rows = append(grants.rows, []string{
			s.name, count(n), count(len(rate)), ms(median(gaps)), ms(quantile(gaps, 0.9)), ms(quantile(gaps, 1)), fmt.Sprintf("%.0f", median(rate)),
			dash(s.server > 0, "%.3f", median(server)), dash(median(requests) > 0, "%.1f", median(requests)), dash(s.server > 0, "%.2f", median(connections)), fmt.Sprintf("%.2f", median(clients)),
		})
		b.plotAs("scale-grant", s.name, fmt.Sprintf("%d waiting", n), golock, gaps)
		b.plotAs("scale-cpu", s.name, fmt.Sprintf("%d waiting", n), golock, both)
		if golock && median(requests) > 0 {
			b.note(fmt.Sprintf("scale: %s, %d waiting, requests per grant", s.name, n), "", requests)
		}
	}
	if golock {
		growth := median(last) / median(first)
		b.note(fmt.Sprintf("scale: %s, cost of a grant with %d waiting, against %d", s.name, reached, crowds[0]), "x", []float64{growth})
		if s.scheme != "redis" && s.server > 0 {
			b.target(fmt.Sprintf("%s: what a grant costs the server with %d waiting, against %d", s.scheme, reached, crowds[0]), 1.5, 0, "x", growth)
		}
	}
	return nil
}

// dash is a number, or where there is none a dash.
func dash(is bool, format string, v float64) string {
	if !is {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func sum(a, b []float64) []float64 {
	var all []float64
	for i := range a {
		all = append(all, a[i]+b[i])
	}
	return all
}

// scaleIdle watches a line and adds its row.
func (b *bench) scaleIdle(to *section, s *scaleStore, c *waitingCrowd, queued float64) error {
	p := b.plan.scale
	if err := b.pause(p.settle); err != nil {
		return err
	}
	w, err := b.watchIdle(c, p.ttl/3, s.work)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	var rss, private []float64
	for _, process := range c.all[1:] {
		f, err := footprintOf(process.pid)
		if err != nil {
			return err
		}
		rss, private = append(rss, f.rss), append(private, f.private)
	}
	n := len(rss)
	thirds := w.lasted / 1e3 / (float64(p.ttl) / 3) // how many times TTL/3 they were watched
	requests := float64(w.spent.statements) / float64(n) / thirds
	wakeups := float64(w.waiters.switches) / float64(n) / w.watched * 1e3
	to.rows = append(to.rows, []string{
		s.name, count(n), ms(queued), dash(s.server > 0, "%.2f", w.spent.cpu/w.lasted*1e3), dash(requests > 0, "%.2f", requests),
		ms(w.waiters.cpu / w.watched), fmt.Sprintf("%.2f", wakeups), mib(median(rss)), mib(median(private)),
	})
	switch s.scheme {
	case "local":
		b.target(fmt.Sprintf("local: wake-ups of %d waiters in %d s", n, p.ttl/3), 0, 0, "", float64(w.waiters.switches))
	case "redis":
		b.target(fmt.Sprintf("redis: commands per waiter and TTL/3 while %d wait", n), oneLook, 0, "", requests)
		b.note(fmt.Sprintf("scale: %s, %d waiting, commands per waiter and TTL/3", s.name, n), "", []float64{requests})
	}
	return nil
}

// scaleDrain lets a line go, and tells what the server did until all have
// ended. c.cpu is then what those that waited have used since.
func (b *bench) scaleDrain(s *scaleStore, c *waitingCrowd) (spent work, records []record, err error) {
	used := 0.0
	for _, p := range c.all[1:] {
		cpu, err := cpuOfOne(p.pid)
		if err != nil {
			return spent, nil, err
		}
		used += cpu
	}
	var before, after work
	if s.work != nil {
		if before, err = s.work(); err != nil {
			return spent, nil, err
		}
	}
	if records, err = c.finish(); err != nil {
		return spent, nil, err
	}
	c.cpu -= used
	if s.work != nil {
		if after, err = s.work(); err != nil {
			return spent, nil, err
		}
	}
	return after.since(before), records, nil
}
