package main

import "fmt"

// redisBurst starts many contenders of one lock at once, each with something
// to do.
func (b *bench) redisBurst() error {
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	p := b.plan.redis
	rows := []*crowd{
		{tool: b.tools["golock"], jobs: p.jobs},
		{tool: srv.golock(b), jobs: p.jobs},
		{tool: srv.golock(b, "--on-lost", "warn"), jobs: p.jobs},
		{tool: srv.poll(b), jobs: p.jobs},
		{tool: b.tools["flock"], jobs: p.jobs},
	}
	err = b.burstAll(p.burst, rows, func(l lock, n int) []string { return b.stamp.lasting(l, n, p.section) })
	if err != nil {
		return err
	}
	s := section{
		title: fmt.Sprintf("Redis, burst: %d at once with sections of %d ms", p.jobs, p.section),
		how: fmt.Sprintf("As above, but each sleeps for %d ms under the lock and then appends its record: %d ms is what no lock can be faster than.",
			p.section, p.jobs*p.section),
		head: crowdHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio("redis-burst", r.tool, r.job, rows[0].name, rows[0].job)
		b.plot("burst", fmt.Sprintf("%d at once with sections of %d ms", p.jobs, p.section), r.tool, r.job.values())
	}
	s.notes = append(s.notes, pollNote)
	b.sections = append(b.sections, s)
	b.target(fmt.Sprintf("redis: burst of %d with sections of %d ms", p.jobs, p.section), 450, 0, " ms", median(rows[1].total.values()))
	return nil
}
