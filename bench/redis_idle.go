package main

import (
	"fmt"
	"time"
)

// oneLook is what a waiter may ask in TTL/3: one look. The first two in line
// look besides now and then.
const oneLook = 1.05

// redisIdle watches servers while many wait and nothing happens.
func (b *bench) redisIdle() error {
	p := b.plan.redis
	type row struct {
		*server
		*tool
		held    *tool // whose lease lasts, so that only waiters have anything to do
		lock    lock
		all     []*process
		waiters []int

		holder         *holder
		asked          usage
		own, crowd     activity // cpu of the server, of the waiters
		usedBy, wokeBy activity
		begun, lasted  float64
	}
	ttl := fmt.Sprintf("%ds", p.ttl)
	var rows []*row
	for _, tools := range []func(s *server) (waiter, holder *tool){
		func(s *server) (*tool, *tool) { return s.golock(b, "-q", "--ttl", ttl), s.golock(b, "--ttl", "1h") },
		func(s *server) (*tool, *tool) { return s.poll(b), s.poll(b) },
	} {
		srv, err := b.startServer()
		if err != nil {
			return err
		}
		defer srv.stop()
		r := &row{server: srv}
		r.tool, r.held = tools(srv)
		rows = append(rows, r)
		if r.lock, err = b.place("idle"); err != nil {
			return err
		}
		if r.holder, err = b.hold(r.held, r.lock); err != nil {
			return err
		}
		r.all = append(r.all, r.holder.process)
		for n := range p.idle {
			w, err := b.start(r.argv(r.lock, b.stamp.section(r.lock, n+1)...))
			if err != nil {
				return err
			}
			r.all, r.waiters = append(r.all, w), append(r.waiters, w.pid)
		}
		err = b.until("all waiters are queued", 2*time.Millisecond, func() (bool, error) {
			n, err := r.waiting(r.lock)
			return n == p.idle, err
		})
		if err != nil {
			return err
		}
	}
	if err := b.pause(p.settle); err != nil {
		return err
	}
	look := func(r *row) (u usage, own, crowd activity, err error) {
		if own, err = activityOf(r.server.pid); err != nil {
			return
		}
		if crowd, err = activityOf(r.waiters...); err != nil {
			return
		}
		u, err = r.usage()
		return
	}
	for _, r := range rows {
		var err error
		if r.asked, r.own, r.crowd, err = look(r); err != nil {
			return err
		}
		r.begun = now()
	}
	if err := b.pause(2 * p.ttl / 3); err != nil {
		return err
	}
	for _, r := range rows {
		u, own, crowd, err := look(r)
		if err != nil {
			return err
		}
		r.lasted = now() - r.begun
		r.asked, r.usedBy, r.wokeBy = u.since(r.asked), own.since(r.own), crowd.since(r.crowd)
	}
	for _, r := range rows {
		r.holder.release()
		for _, w := range r.all {
			if _, err := w.succeed(); err != nil {
				return err
			}
		}
		if _, err := readRecords(r.tool, r.lock, p.idle+1); err != nil {
			return err
		}
	}

	s := section{
		title: fmt.Sprintf("Redis, %d waiters on one name", p.idle),
		how: fmt.Sprintf("Each tool has a server of its own, and both are watched in the same window of %d s, which begins %d s after the last waiter "+
			"was queued: the commands that clients send, and the CPU time of the server and of all waiters together. The holder's lease is "+
			"long enough that it renews nothing meanwhile.", 2*p.ttl/3, p.settle),
		head: []string{"tool", "waiting", "commands", "per waiter and second", fmt.Sprintf("per waiter and TTL/3 of %d s", p.ttl/3), "server cpu ms/s", "waiters cpu ms/s", "waiters' context switches/s"},
	}
	for i, r := range rows {
		each := float64(r.asked.asked()) / float64(p.idle) / r.lasted * 1e3
		s.rows = append(s.rows, []string{
			r.name, count(p.idle), count(r.asked.asked()), fmt.Sprintf("%.3f", each), fmt.Sprintf("%.3f", each*float64(p.ttl)/3),
			ms(r.usedBy.cpu / r.lasted), ms(r.wokeBy.cpu / r.lasted), fmt.Sprintf("%.0f", float64(r.wokeBy.switches)/r.lasted*1e3),
		})
		if i == 0 {
			b.note(fmt.Sprintf("redis-idle, %d waiting: golock run, redis -q, commands per waiter and TTL/3", p.idle), "", []float64{each * float64(p.ttl) / 3})
			b.target(fmt.Sprintf("redis: commands per waiter and TTL/3 while %d wait", p.idle), oneLook, 0, "", each*float64(p.ttl)/3)
		}
	}
	s.notes = append(s.notes, pollNote, tellsNote)
	b.sections = append(b.sections, s)
	return nil
}
