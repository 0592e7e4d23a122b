package main

import "fmt"

// sqlBurst starts many contenders of one lock at once, each with something to
// do.
func (b *bench) sqlBurst(kind sqlKind) error {
	d, err := b.startDatabase(kind, false)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.used(); err != nil {
		return err
	}
	p := b.plan.sql
	rows := []*crowd{
		{tool: b.tools["golock"], jobs: p.jobs},
		{tool: d.golock(), jobs: p.jobs},
		{tool: d.golock("--on-lost", "warn"), jobs: p.jobs},
		{tool: kind.session(d), jobs: p.jobs},
	}
	err = b.burstAll(p.burst, rows, func(l lock, n int) []string { return b.stamp.lasting(l, n, p.section) })
	if err != nil {
		return err
	}
	s := section{
		title: fmt.Sprintf("%s, burst: %d at once with sections of %d ms", kind.title(), p.jobs, p.section),
		how: fmt.Sprintf("As above: each sleeps for %d ms under the lock, so that %d ms is what no lock can be faster than.",
			p.section, p.jobs*p.section),
		head: crowdHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio(kind.scheme()+"-burst", r.tool, r.job, rows[0].name, rows[0].job)
		if r != rows[0] {
			b.plot("burst", fmt.Sprintf("%d at once with sections of %d ms", p.jobs, p.section), r.tool, r.job.values())
		}
	}
	s.notes = append(s.notes, kind.sessionNote())
	b.sections = append(b.sections, s)
	b.target(fmt.Sprintf("%s: burst of %d with sections of %d ms", kind.scheme(), p.jobs, p.section), 600, 0, " ms", median(rows[1].total.values()))
	return nil
}
