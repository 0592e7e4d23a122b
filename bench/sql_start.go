package main

import "fmt"

// sqlStart compares what one uncontended run of /bin/true costs on the machine
// and on a server.
func (b *bench) sqlStart(kind sqlKind) error {
	d, err := b.startDatabase(kind, false)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.used(); err != nil {
		return err
	}
	rows := []*starter{
		{tool: b.tools["golock"]},
		{tool: d.golock()},
		{tool: d.golockBySocket()},
		{tool: d.golock("--on-lost", "warn")},
		{tool: kind.session(d)},
	}
	for _, r := range rows {
		r.base = rows[0].name
	}
	if err := b.startAll(b.plan.sql.start, rows); err != nil {
		return err
	}
	s := section{
		title: kind.title() + ", start-up: a run of /bin/true",
		how: "As above, with the store on a server on loopback, with a password and without TLS. With `--on-lost warn` the command has " +
			"no guard.",
		head: append(append([]string{}, startHead...), "beyond local ms"),
	}
	for _, r := range rows {
		s.rows = append(s.rows, append(r.cells(rows[0]), ms(r.wall.beyond(rows[0].wall))))
		b.noteRatio(kind.scheme()+"-start", r.tool, r.wall, rows[0].name, rows[0].wall)
		if r != rows[0] {
			b.plot("start-up", "locks on a server, on loopback", r.tool, r.wall.values())
		}
	}
	s.notes = append(s.notes, kind.sessionNote())
	b.sections = append(b.sections, s)
	what := fmt.Sprintf("%s: start-up of `run -- true`", kind.scheme())
	b.target(what, 6, 0, " ms", median(rows[1].wall.values()))
	b.target(what+", beyond the local store", 4, 0, " ms", rows[1].wall.beyond(rows[0].wall))
	return nil
}
