package main

import "fmt"

// sqlGrants measures what a grant costs the server, by the number of those who
// wait.
func (b *bench) sqlGrants(kind sqlKind) error {
	d, err := b.startDatabase(kind, false)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.used(); err != nil {
		return err
	}
	type row struct {
		*tool
		waiters              int
		cpu, connected, gaps []float64
	}
	var rows []*row
	for _, n := range b.plan.sql.crowds {
		rows = append(rows, &row{tool: d.golock(), waiters: n})
	}
	// Of the others everyone has a connection, of which there are about a hundred.
	for _, n := range []int{16, 80} {
		rows = append(rows, &row{tool: kind.session(d), waiters: n})
	}
	for range b.plan.sql.grants {
		for _, r := range rows {
			c, err := b.crowd(r.tool, r.tool, r.waiters)
			if err != nil {
				return err
			}
			before, err := kind.work(d)
			if err != nil {
				return err
			}
			records, err := c.finish()
			if err != nil {
				return err
			}
			after, err := kind.work(d)
			if err != nil {
				return err
			}
			spent := after.since(before)
			r.cpu = append(r.cpu, spent.cpu/float64(r.waiters+1))
			r.connected = append(r.connected, float64(spent.connections)/float64(r.waiters+1))
			for i := 1; i < len(records); i++ {
				r.gaps = append(r.gaps, records[i].start-records[i-1].end)
			}
		}
	}
	s := section{
		title: kind.title() + ", what a grant costs the server",
		how: "Some wait behind a holder, which lets go when all are queued. From then until the last has ended: the CPU time of the server, " +
			"all its processes, by the number of commands that have had their turn. Of golock's waiters the first 16 keep a connection.",
		head: []string{"tool", "waiting", "rounds", "server cpu ms per grant", "connections per grant", "gap ms median", "p90", "max"},
	}
	for _, r := range rows {
		s.rows = append(s.rows, []string{
			r.name, count(r.waiters), count(len(r.cpu)), fmt.Sprintf("%.3f", median(r.cpu)), fmt.Sprintf("%.2f", median(r.connected)),
			ms(median(r.gaps)), ms(quantile(r.gaps, 0.9)), ms(quantile(r.gaps, 1)),
		})
	}
	s.notes = append(s.notes, kind.sessionNote())
	b.sections = append(b.sections, s)
	first, last := rows[0], rows[len(b.plan.sql.crowds)-1]
	b.target(fmt.Sprintf("%s: what a grant costs the server with %d waiting, against %d", kind.scheme(), last.waiters, first.waiters),
		1.5, 0, "x", median(last.cpu)/median(first.cpu))
	return nil
}
