package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// supervise compares the care for a command with that of tools that do nothing
// else: what they cost at the start, how soon a signal to them is the end of
// both, what they occupy meanwhile. golock also takes and gives back a lock.
func (b *bench) supervise() error {
	tools := []*tool{
		b.tools["timeout"], b.tools["tini"], b.tools["dumb-init"], b.tools["golock"],
		golockTool("golock run --time-limit 1h", b.tools["golock"].path, localStore, "--time-limit", "1h"),
		golockTool("golock run --tree", b.tools["golock"].path, localStore, "--tree"),
	}
	var rows []*starter
	for _, t := range tools {
		rows = append(rows, &starter{tool: t, base: tools[0].name})
	}
	if err := b.startAll(b.plan.supervise, rows); err != nil {
		return err
	}
	s := section{
		title: "Care for a command: start-up",
		how: "A run of /bin/true as above, beside tools that look after a command without a lock: timeout(1), which can end it, and tini " +
			"and dumb-init, which pass signals on and collect orphans.",
		head: startHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio("supervise, start", r.tool, r.wall, rows[0].name, rows[0].wall)
		if !r.isGolock() {
			b.plot("start-up", "care for a command, no lock", r.tool, r.wall.values())
		}
	}
	b.sections = append(b.sections, s)
	return b.superviseSignal(tools)
}

func (b *bench) superviseSignal(tools []*tool) error {
	type row struct {
		*tool
		told paired
		rss  []float64
	}
	var rows []*row
	for _, t := range tools {
		rows = append(rows, &row{tool: t, told: paired{}})
	}
	for round := range b.plan.supervise {
		for i := range rows {
			r := rows[(round+i)%len(rows)]
			l, err := b.place("supervise")
			if err != nil {
				return err
			}
			h, err := b.hold(r.tool, l)
			if err != nil {
				return err
			}
			f, err := footprintOf(h.pid)
			if err != nil {
				return err
			}
			told := now()
			if err := unix.Kill(h.pid, unix.SIGTERM); err != nil {
				return err
			}
			end, err := h.wait()
			if err != nil {
				return err
			}
			if want := 128 + int(unix.SIGTERM); end.code != want {
				return fmt.Errorf("%q ended with %d after TERM, want %d", h.argv, end.code, want)
			}
			h.release()
			r.told[round] = end.ended - told
			r.rss = append(r.rss, f.rss)
		}
	}
	s := section{
		title: "Care for a command: signal and memory",
		how: "The tool is sent TERM while its command sleeps; the time is until the tool has been waited for, which is after the end of the " +
			"command. Memory is the tool's own while the command runs.",
		head: []string{"tool", "rounds", "ms p50", "p90", "p99", "compared with", "median of ratios", "RSS MiB"},
	}
	for _, r := range rows {
		told := r.told.values()
		s.rows = append(s.rows, []string{
			r.name, count(len(told)), ms(median(told)), ms(quantile(told, 0.9)), ms(quantile(told, 0.99)), rows[0].name,
			ratio(r.told.against(rows[0].told)), mib(median(r.rss)),
		})
		b.noteRatio("supervise, signal to end", r.tool, r.told, rows[0].name, rows[0].told)
		if !r.isGolock() {
			b.plotAs("memory", "", r.name, false, inMiB(r.rss))
		}
	}
	b.sections = append(b.sections, s)
	return nil
}
