package main

import (
	"fmt"
	"slices"
)

// burst starts many contenders of one lock at once.
func (b *bench) burst() error {
	rows := []*crowd{
		{tool: b.tools["flock"], jobs: b.plan.burstJobs},
		{tool: b.tools["setlock"], jobs: b.plan.burstJobs},
		{tool: b.tools["s6-setlock"], jobs: b.plan.burstJobs},
		{tool: b.tools["chpst -l"], jobs: b.plan.burstJobs},
		{tool: b.tools["floor"], jobs: b.plan.burstJobs},
		{tool: b.tools["golock"], jobs: b.plan.burstJobs},
		{tool: b.tools["sem"], jobs: b.plan.burstSem},
	}
	if err := b.burstAll(b.plan.burst, rows, b.stamp.section); err != nil {
		return err
	}

	s := section{
		title: fmt.Sprintf("Burst: %d at once on one lock", b.plan.burstJobs),
		how: "All are started as fast as one process can start them; each appends one record to a file under the lock. " +
			"Total is from before the first start until the last has been waited for. An overlap is a " +
			"command that began before the one before it had ended; one of any tool but sem would end the run with an error.",
		head: crowdHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio("burst", r.tool, r.job, rows[0].name, rows[0].job)
		b.plot("burst", fmt.Sprintf("%d at once, the shortest sections (sem: %d)", b.plan.burstJobs, b.plan.burstSem), r.tool, r.job.values())
	}
	s.notes = append(s.notes, floorNote)
	s.notes = append(s.notes, fmt.Sprintf("sem: %d processes only; its ratios compare the time per process, which grows with their number", b.plan.burstSem))
	b.sections = append(b.sections, s)
	b.target(fmt.Sprintf("burst of %d, against flock", b.plan.burstJobs), 1.8, 0, "x", find(rows, b.tools["golock"]).job.against(rows[0].job))
	return nil
}

// find gives the row of a tool.
func find(rows []*crowd, t *tool) *crowd {
	return rows[slices.IndexFunc(rows, func(r *crowd) bool { return r.tool == t })]
}

// crowd is a tool of which many are started at once.
type crowd struct {
	*tool
	jobs       int
	total, job paired // ms; job is the total divided by the jobs
	failed     int
	overlaps   int
}

// burstAll has every tool work off a crowd in each round; command is what the
// nth of them runs.
func (b *bench) burstAll(rounds int, rows []*crowd, command func(l lock, n int) []string) error {
	for _, r := range rows {
		r.total, r.job = paired{}, paired{}
	}
	for round := range rounds {
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("burst")
			if err != nil {
				return err
			}
			var started []*process
			for n := range r.jobs {
				p, err := b.start(r.argv(l, command(l, n)...))
				if err != nil {
					return err
				}
				started = append(started, p)
			}
			end, ran := 0.0, r.jobs
			for _, p := range started {
				res, err := p.wait()
				if err != nil {
					return err
				}
				end = max(end, res.ended)
				if res.code == 0 {
					continue
				}
				// Of many sems that begin at once some end with a fault of their
				// own (write_idfile); that is counted. Of the others it is an error.
				if r.name != "sem" {
					return fmt.Errorf("%q ended with %d", p.argv, res.code)
				}
				r.failed++
				ran--
			}
			records, err := readRecords(r.tool, l, ran)
			if err != nil {
				return err
			}
			r.overlaps += overlaps(records)
			r.total[round] = end - started[0].begun
			r.job[round] = r.total[round] / float64(r.jobs)
		}
	}
	return nil
}

var crowdHead = []string{"tool", "processes", "rounds", "failed", "overlaps", "total ms", "p10", "p90", "ms per process", "median of ratios", "ratio of medians"}

// cells are the row of a table under crowdHead.
func (r *crowd) cells(base *crowd) []string {
	total := r.total.values()
	return []string{
		r.name, count(r.jobs), count(len(total)), fmt.Sprintf("%d of %d", r.failed, r.jobs*len(total)), count(r.overlaps), ms(median(total)), ms(quantile(total, 0.1)), ms(quantile(total, 0.9)),
		fmt.Sprintf("%.3f", median(r.job.values())), ratio(r.job.against(base.job)),
		ratio(median(r.job.values()) / median(base.job.values())),
	}
}
