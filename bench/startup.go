package main

import (
	"fmt"
	"slices"
)

// floorNote explains the row of the tables.
const floorNote = "flock in Go: 40 lines that do what flock does and nothing more, the least that any program in Go costs"

// becomesNote explains why some rows are below flock's.
const becomesNote = "setlock, s6-setlock and chpst become their command, as `flock -F` and `golock run -F` do: there is one process less"

// startUp compares what one uncontended run of /bin/true costs.
func (b *bench) startUp() error {
	rows := []*starter{
		{tool: b.tools["true"], base: "flock"},
		{tool: b.tools["flock"], base: "flock"},
		{tool: b.tools["setlock"], base: "flock"},
		{tool: b.tools["s6-setlock"], base: "flock"},
		{tool: b.tools["chpst -l"], base: "flock"},
		{tool: b.tools["floor"], base: "flock"},
		{tool: b.tools["golock"], base: "flock"},
		{tool: b.tools["sem"], base: "flock", every: b.plan.startSem},
		{tool: b.tools["flock -F"], base: "flock -F"},
		{tool: b.tools["floor -F"], base: "flock -F"},
		{tool: b.tools["golock -F"], base: "flock -F"},
	}
	if err := b.startAll(b.plan.start, rows); err != nil {
		return err
	}

	s := section{
		title: "Start-up: a run of /bin/true",
		how: "One uncontended `TOOL -- true` after the other, in rounds: each tool once a round, the order rotating, " +
			"wall time from before the fork until the tool has been waited for. CPU time and memory include the command.",
		head: startHead,
	}
	find := func(name string) *starter {
		return rows[slices.IndexFunc(rows, func(r *starter) bool { return r.name == name })]
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(find(r.base)))
		b.noteRatio("start", r.tool, r.wall, r.base, find(r.base).wall)
		b.plot("start-up", "locks of this machine", r.tool, r.wall.values())
	}
	s.notes = append(s.notes, floorNote)
	s.notes = append(s.notes, becomesNote)
	s.notes = append(s.notes, fmt.Sprintf("sem takes part in every %dth round only", b.plan.startSem))
	b.sections = append(b.sections, s)
	b.target("start-up of `run -- true`, against flock", 2.2, 1.5, "x", find("golock run").wall.against(find("flock").wall))
	b.target("start-up of `run -F -- true`, against flock -F", 2.5, 1.8, "x", find("golock run -F").wall.against(find("flock -F").wall))
	return nil
}

// starter is a tool whose start-up is measured.
type starter struct {
	*tool
	base      string // compared with
	every     int    // takes part in every so-manieth round; 0: in all
	lock      lock
	wall, cpu paired
	rss       float64
}

// startAll has every tool run /bin/true once in each round.
func (b *bench) startAll(rounds int, rows []*starter) error {
	command := b.tools["true"].path
	for _, r := range rows {
		r.wall, r.cpu = paired{}, paired{}
		var err error
		if r.lock, err = b.place("start"); err != nil {
			return err
		}
		var rss []float64
		for range 5 { // also the warm-up
			kib, err := b.maxRSS(r.lock, r.argv(r.lock, command))
			if err != nil {
				return err
			}
			rss = append(rss, kib)
		}
		r.rss = median(rss)
	}

	for round := range rounds {
		// The order changes from round to round, so that nobody always runs
		// behind the same neighbour.
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			if r.every > 0 && round%r.every != 0 {
				continue
			}
			p, err := b.start(r.argv(r.lock, command))
			if err != nil {
				return err
			}
			end, err := p.succeed()
			if err != nil {
				return err
			}
			r.wall[round], r.cpu[round] = end.ended-p.begun, end.cpu
		}
	}
	return nil
}

var startHead = []string{"run", "rounds", "wall ms", "p10", "p90", "cpu ms", "max RSS MiB", "compared with", "median of ratios", "ratio of medians"}

// cells are the row of a table under startHead.
func (r *starter) cells(base *starter) []string {
	wall := r.wall.values()
	return []string{
		r.name, count(len(wall)), ms(median(wall)), ms(quantile(wall, 0.1)), ms(quantile(wall, 0.9)),
		ms(median(r.cpu.values())), mib(r.rss), r.base, ratio(r.wall.against(base.wall)),
		ratio(median(wall) / median(base.wall.values())),
	}
}
