package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// sqlIdle watches a server while some wait and nothing happens.
func (b *bench) sqlIdle(kind sqlKind) error {
	p := b.plan.sql
	ttl := fmt.Sprintf("%ds", p.ttl)
	s := section{
		title: kind.title() + ", waiters on one name while nothing happens",
		how: fmt.Sprintf("Watched for %d s, beginning %d s after the last waiter was queued: the transactions that clients begin and the statements "+
			"that they send, as the server counts them (PostgreSQL: a text of several statements is one), the connections that they make, and the CPU time of the server. "+
			"The first 16 keep a connection, the others come back now and then. The holder's lease is long enough that it renews nothing meanwhile.", 2*p.ttl/3, p.settle),
		head: []string{"tool", "waiting", "transactions", fmt.Sprintf("per waiter and TTL/3 of %d s", p.ttl/3), "statements", fmt.Sprintf("per waiter and TTL/3 of %d s", p.ttl/3), "connections", "server cpu ms/s"},
	}
	golock := func(d *database) (holding, waiting *tool) {
		return d.golock("--ttl", "1h"), d.golock("-q", "--ttl", ttl)
	}
	type row struct {
		waiters int
		tools   func(d *database) (holding, waiting *tool)
	}
	var rows []row
	for _, n := range p.idle {
		rows = append(rows, row{n, golock})
	}
	for _, session := range kind.sessions() {
		rows = append(rows, row{p.sessions, func(d *database) (holding, waiting *tool) { t := session(d); return t, t }})
	}
	for i, r := range rows {
		name, spent, lasted, err := b.idleOn(kind, r.waiters, r.tools)
		if err != nil {
			return err
		}
		each := func(n int) float64 { return float64(n) / float64(r.waiters) / lasted * 1e3 * float64(p.ttl) / 3 }
		s.rows = append(s.rows, []string{
			name, count(r.waiters), count(spent.transactions), fmt.Sprintf("%.2f", each(spent.transactions)),
			count(spent.statements), fmt.Sprintf("%.2f", each(spent.statements)), count(spent.connections), ms(spent.cpu / lasted * 1e3),
		})
		if i < len(p.idle) {
			b.note(fmt.Sprintf("%s-idle, %d waiting: transactions per waiter and TTL/3", kind.scheme(), r.waiters), "", []float64{each(spent.transactions)})
		}
		if i == 0 {
			b.target(fmt.Sprintf("%s: transactions per waiter and TTL/3 while %d wait", kind.scheme(), r.waiters), 1, 0, "", each(spent.transactions))
		}
	}
	s.notes = append(s.notes, kind.sessionNote(), tellsNote)
	b.sections = append(b.sections, s)
	return nil
}

// idleOn has so many wait on a server of their own, and gives what was done in
// how many ms.
func (b *bench) idleOn(kind sqlKind, waiters int, tools func(d *database) (holding, waiting *tool)) (name string, spent work, lasted float64, err error) {
	d, err := b.startDatabase(kind, true)
	if err != nil {
		return name, spent, 0, err
	}
	defer d.stop()
	holding, waiting := tools(d)
	c, err := b.crowd(holding, waiting, waiters)
	if err != nil {
		return name, spent, 0, err
	}
	if err := b.pause(b.plan.sql.settle); err != nil {
		return name, spent, 0, err
	}
	before, err := kind.work(d)
	if err != nil {
		return name, spent, 0, err
	}
	begun := now()
	if err := b.pause(2 * b.plan.sql.ttl / 3); err != nil {
		return name, spent, 0, err
	}
	after, err := kind.work(d)
	if err != nil {
		return name, spent, 0, err
	}
	lasted = now() - begun
	_, err = c.finish()
	return waiting.name, after.since(before), lasted, err
}

// waitingCrowd is a holder and many who were started behind it.
type waitingCrowd struct {
	*holder
	tool *tool
	lock lock
	all  []*process
	cpu  float64 // of all that waited, in ms, when finish has returned
}

// crowd starts them, a few at a time, and returns when all are queued. With an
// error it gives those that have been started, unless that is not even one.
func (b *bench) crowd(holding, waiting *tool, waiters int) (*waitingCrowd, error) {
	l, err := b.place("crowd")
	if err != nil {
		return nil, err
	}
	h, err := b.hold(holding, l)
	if err != nil {
		return nil, err
	}
	c := &waitingCrowd{holder: h, tool: waiting, lock: l, all: []*process{h.process}}
	for n := range waiters {
		p, err := b.start(waiting.argv(l, b.stamp.section(l, n+1)...))
		if err != nil {
			return c, err
		}
		c.all = append(c.all, p)
		if err := c.queued(n - eager); err != nil {
			return c, err
		}
	}
	return c, c.queued(waiters)
}

// kill ends them all.
func (c *waitingCrowd) kill() {
	for _, p := range c.all {
		p.b.mu.Lock()
		if !p.b.stopped && !p.gone() {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		p.b.mu.Unlock()
		_, _ = p.wait()
	}
	unix.Close(c.fifo)
}

// eager is how many are on their way into the queue at a time: a server that is
// run over is not what is measured.
const eager = 8

// queued returns when at least so many are.
func (c *waitingCrowd) queued(want int) error {
	if want <= 0 {
		return nil
	}
	return c.b.until(fmt.Sprintf("%d are queued", want), time.Millisecond, func() (bool, error) {
		n, err := c.tool.waiting(c.lock)
		for i, p := range c.all {
			if err == nil && n < want && p.gone() {
				err = fmt.Errorf("number %d ended instead of waiting", i)
			}
		}
		return n >= want, err
	})
}

// finish lets the holder go and returns the records when all have had their
// turn.
func (c *waitingCrowd) finish() ([]record, error) {
	c.release()
	for i, p := range c.all {
		end, err := p.succeed()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			c.cpu += end.cpu
		}
	}
	return readRecords(c.tool, c.lock, len(c.all))
}
