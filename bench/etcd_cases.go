package main

import (
	"fmt"
	"time"
)

// onEtcd starts a server of etcd and one of Redis beside it.
func (b *bench) onEtcd(measure func(etcd *etcdServer, srv *server) error) error {
	etcd, err := b.startEtcd()
	if err != nil {
		return err
	}
	defer etcd.stop()
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	return measure(etcd, srv)
}

// etcdStart compares what one uncontended run of /bin/true costs.
func (b *bench) etcdStart() error {
	return b.onEtcd(func(etcd *etcdServer, srv *server) error {
		rows := []*starter{{tool: srv.golock(b)}, {tool: etcd.tool(b)}}
		for _, r := range rows {
			r.base = rows[0].name
		}
		if err := b.startAll(b.plan.etcd.start, rows); err != nil {
			return err
		}
		s := section{
			title: "etcd, start-up: a run of /bin/true",
			how:   "As above, golock on a Redis server beside `etcdctl lock` on an etcd of one node, both on loopback.",
			head:  startHead,
		}
		for _, r := range rows {
			s.rows = append(s.rows, r.cells(rows[0]))
		}
		b.plot("start-up", "locks on a server, on loopback", rows[1].tool, rows[1].wall.values())
		s.notes = append(s.notes, etcdNote)
		b.sections = append(b.sections, s)
		return nil
	})
}

// etcdHandOff measures the hand-off with one behind it and with a queue.
func (b *bench) etcdHandOff() error {
	return b.onEtcd(func(etcd *etcdServer, srv *server) error {
		p := b.plan.etcd
		for _, m := range []struct{ rounds, waiters int }{{p.single, 1}, {p.queue, p.waiters}} {
			rows := []*queued{{tool: srv.golock(b), waiters: m.waiters}, {tool: etcd.tool(b), waiters: m.waiters}}
			if err := b.drainAll(m.rounds, rows, 0, 100*time.Millisecond); err != nil {
				return err
			}
			s := section{
				title: fmt.Sprintf("etcd, hand-off with %d waiting", m.waiters),
				how:   "As above. A waiter of etcdctl is queued when the server has its key.",
				head:  queuedHead,
			}
			for _, r := range rows {
				s.rows = append(s.rows, r.cells(rows[0]))
			}
			if m.waiters == 1 {
				b.plot("hand-off", "locks on a server, 1 waiting", rows[1].tool, rows[1].gaps)
			}
			s.notes = append(s.notes, etcdNote)
			b.sections = append(b.sections, s)
		}
		return nil
	})
}

// etcdBurst starts many at once, each with something to do.
func (b *bench) etcdBurst() error {
	return b.onEtcd(func(etcd *etcdServer, srv *server) error {
		p := b.plan.etcd
		rows := []*crowd{{tool: srv.golock(b), jobs: p.jobs}, {tool: etcd.tool(b), jobs: p.jobs}}
		err := b.burstAll(p.burst, rows, func(l lock, n int) []string { return b.stamp.lasting(l, n, p.section) })
		if err != nil {
			return err
		}
		s := section{title: fmt.Sprintf("etcd, burst: %d at once with sections of %d ms", p.jobs, p.section), how: "As above.", head: crowdHead}
		for _, r := range rows {
			s.rows = append(s.rows, r.cells(rows[0]))
		}
		b.plot("burst", fmt.Sprintf("%d at once with sections of %d ms", p.jobs, p.section), rows[1].tool, rows[1].job.values())
		s.notes = append(s.notes, etcdNote)
		b.sections = append(b.sections, s)
		return nil
	})
}

// etcdMemory looks at what the clients occupy.
func (b *bench) etcdMemory() error {
	return b.onEtcd(func(etcd *etcdServer, _ *server) error {
		s, err := b.memoryOf(b.plan.etcd.memory, etcd.tool(b))
		if err != nil {
			return err
		}
		s.title, s.how = "etcd, memory of the wrapper", "As above: one holds and one waits."
		s.notes = append(s.notes, etcdNote)
		b.sections = append(b.sections, s)
		return nil
	})
}

// etcdIdle watches both servers while many wait and nothing happens.
func (b *bench) etcdIdle() error {
	return b.onEtcd(func(etcd *etcdServer, srv *server) error {
		p := b.plan.etcd
		s := section{
			title: fmt.Sprintf("etcd, %d waiters on one name", p.idle),
			how: fmt.Sprintf("As with Redis: a window of %d s, with a TTL of %d s for both. Commands are what clients send; of etcd also the messages in "+
				"streams that are open, such as those that keep leases alive.", 2*p.ttl/3, p.ttl),
			head: []string{"tool", "waiting", "commands", fmt.Sprintf("per waiter and TTL/3 of %d s", p.ttl/3), "server cpu ms/s", "waiters cpu ms/s", "waiters' context switches/s", "server RSS MiB"},
		}
		for _, m := range []struct {
			waiting, holding *tool
			server           int
			asked            func() (int, error)
		}{
			{srv.golock(b, "-q", "--ttl", fmt.Sprintf("%ds", p.ttl)), srv.golock(b, "--ttl", "1h"), srv.pid, func() (int, error) {
				u, err := srv.usage()
				return u.asked(), err
			}},
			{etcd.tool(b, "--ttl", count(p.ttl)), etcd.tool(b, "--ttl", "3600"), etcd.pid, etcd.asked},
		} {
			c, err := b.crowd(m.holding, m.waiting, p.idle)
			if err != nil {
				return err
			}
			if err := b.pause(p.settle); err != nil {
				return err
			}
			w, err := b.watchIdle(c, 2*p.ttl/3, func() (w work, err error) {
				if w.statements, err = m.asked(); err == nil {
					w.cpu, err = cpuOf(m.server)
				}
				return w, err
			})
			if err != nil {
				return err
			}
			f, err := footprintOf(m.server)
			if err != nil {
				return err
			}
			if _, err := c.finish(); err != nil {
				return err
			}
			s.rows = append(s.rows, []string{
				m.waiting.name, count(p.idle), count(w.spent.statements), fmt.Sprintf("%.3f", float64(w.spent.statements)/float64(p.idle)/w.lasted*1e3*float64(p.ttl)/3),
				ms(w.spent.cpu / w.lasted * 1e3), ms(w.waiters.cpu / w.watched), fmt.Sprintf("%.0f", float64(w.waiters.switches)/w.watched*1e3), mib(f.rss),
			})
		}
		s.notes = append(s.notes, etcdNote, tellsNote)
		b.sections = append(b.sections, s)
		return nil
	})
}
