package main

import "fmt"

// memory looks at what a wrapper occupies while its command runs and while it
// waits.
func (b *bench) memory() error {
	type row struct {
		*tool
		state             string
		rss, pss, private []float64
	}
	var rows []*row
	for _, name := range []string{"flock", "sem", "golock"} {
		for _, state := range []string{"holding", "waiting"} {
			rows = append(rows, &row{tool: b.tools[name], state: state})
		}
	}
	look := func(r *row, p *process) error {
		f, err := footprintOf(p.pid)
		r.rss, r.pss, r.private = append(r.rss, f.rss), append(r.pss, f.pss), append(r.private, f.private)
		return err
	}
	for range b.plan.memory {
		for i := 0; i < len(rows); i += 2 {
			l, err := b.place("memory")
			if err != nil {
				return err
			}
			h, err := b.hold(rows[i].tool, l)
			if err != nil {
				return err
			}
			p, err := b.queue(rows[i].tool, l, 1)
			if err != nil {
				return err
			}
			if err := look(rows[i], h.process); err != nil {
				return err
			}
			if err := look(rows[i+1], p); err != nil {
				return err
			}
			h.release()
			for _, p := range []*process{h.process, p} {
				if _, err := p.succeed(); err != nil {
					return err
				}
			}
		}
	}

	s := section{
		title: "Memory of the wrapper",
		how: "From /proc/PID/smaps_rollup of the tool itself, its command not included. One holds and one waits: the " +
			"pages of the program are then shared, and private is what each of them needs for itself. setlock, s6-setlock and chpst are not listed: they become their command " +
			"and occupy nothing then; so do `flock -F` and `golock run -F`.",
		head: []string{"tool", "state", "samples", "RSS MiB", "Pss MiB", "private MiB"},
	}
	for _, r := range rows {
		s.rows = append(s.rows, []string{
			r.name, r.state, count(len(r.rss)), mib(median(r.rss)), mib(median(r.pss)), mib(median(r.private)),
		})
		if r.state == "holding" {
			b.plotAs("memory", "", r.name, r.isGolock(), inMiB(r.rss))
		}
		if r.tool == b.tools["golock"] {
			b.note("memory: "+r.name+", "+r.state+", RSS", "MiB", inMiB(r.rss))
			b.note("memory: "+r.name+", "+r.state+", private", "MiB", inMiB(r.private))
			b.target(fmt.Sprintf("RSS while %s", r.state), 10, 6, " MiB", median(r.rss)/1024)
			b.target(fmt.Sprintf("private memory while %s", r.state), 2.5, 0, " MiB", median(r.private)/1024)
		}
	}
	b.sections = append(b.sections, s)
	return nil
}

// inMiB is a sample of KiB.
func inMiB(kib []float64) []float64 {
	var all []float64
	for _, v := range kib {
		all = append(all, v/1024)
	}
	return all
}
