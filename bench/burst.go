package main

import "fmt"

// burst starts many contenders of one lock at once.
func (b *bench) burst() error {
	type row struct {
		*tool
		jobs       int
		total, job paired // ms; job is the total divided by the jobs
		failed     int
		overlaps   int
	}
	rows := []*row{
		{b.tools["flock"], b.plan.burstJobs, paired{}, paired{}, 0, 0},
		{b.tools["setlock"], b.plan.burstJobs, paired{}, paired{}, 0, 0},
		{b.tools["floor"], b.plan.burstJobs, paired{}, paired{}, 0, 0},
		{b.tools["golock"], b.plan.burstJobs, paired{}, paired{}, 0, 0},
		{b.tools["sem"], b.plan.burstSem, paired{}, paired{}, 0, 0},
	}
	for round := range b.plan.burst {
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("burst")
			if err != nil {
				return err
			}
			var started []*process
			for n := range r.jobs {
				p, err := b.start(r.argv(l, b.stamp.section(l, n)...))
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

	s := section{
		title: fmt.Sprintf("Burst: %d at once on one lock", b.plan.burstJobs),
		how: "All are started as fast as one process can start them; each appends one record to a file under the lock. " +
			"Total is from before the first start until the last has been waited for. An overlap is a " +
			"command that began before the one before it had ended; one of any tool but sem would end the run with an error.",
		head: []string{"tool", "processes", "rounds", "failed", "overlaps", "total ms", "p10", "p90", "ms per process", "median of ratios", "ratio of medians"},
	}
	for _, r := range rows {
		total := r.total.values()
		s.rows = append(s.rows, []string{
			r.name, count(r.jobs), count(len(total)), fmt.Sprintf("%d of %d", r.failed, r.jobs*len(total)), count(r.overlaps), ms(median(total)), ms(quantile(total, 0.1)), ms(quantile(total, 0.9)),
			fmt.Sprintf("%.3f", median(r.job.values())), ratio(r.job.against(rows[0].job)),
			ratio(median(r.job.values()) / median(rows[0].job.values())),
		})
	}
	s.notes = append(s.notes, floorNote)
	s.notes = append(s.notes, fmt.Sprintf("sem: %d processes only; its ratios compare the time per process, which grows with their number", b.plan.burstSem))
	b.sections = append(b.sections, s)
	b.target(fmt.Sprintf("burst of %d, against flock", b.plan.burstJobs), 1.6, 0, "x", rows[3].job.against(rows[0].job))
	return nil
}
