package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// redisMemory looks at what golock and its guard occupy while the command runs
// and while it waits.
func (b *bench) redisMemory() error {
	srv, err := b.startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	s, err := b.memoryOf(b.plan.redis.memory, srv.golock(b), srv.golock(b, "--on-lost", "warn"), srv.poll(b))
	if err != nil {
		return err
	}
	s.title = "Redis, memory of the wrapper"
	s.notes = append(s.notes, pollNote)
	b.sections = append(b.sections, s)
	return nil
}

// memoryOf looks at these tools on a server, and at the guards of those that
// have one.
func (b *bench) memoryOf(samples int, tools ...*tool) (section, error) {
	type row struct {
		name, state       string
		rss, pss, private []float64
	}
	var rows []*row
	look := func(name, state string, pid int) error {
		var r *row
		for _, have := range rows {
			if have.name == name && have.state == state {
				r = have
			}
		}
		if r == nil {
			r = &row{name: name, state: state}
			rows = append(rows, r)
		}
		f, err := footprintOf(pid)
		r.rss, r.pss, r.private = append(r.rss, f.rss), append(r.pss, f.pss), append(r.private, f.private)
		return err
	}
	for range samples {
		for _, t := range tools {
			l, err := b.place("memory")
			if err != nil {
				return section{}, err
			}
			h, err := b.hold(t, l)
			if err != nil {
				return section{}, err
			}
			w, err := b.queue(t, l, 1)
			if err != nil {
				return section{}, err
			}
			for _, m := range []struct {
				state string
				*process
			}{{"holding", h.process}, {"waiting", w}} {
				if err := look(t.name, m.state, m.pid); err != nil {
					return section{}, err
				}
				for _, guard := range guardsOf(m.pid) {
					if err := look(t.name+": its guard", m.state, guard); err != nil {
						return section{}, err
					}
				}
			}
			h.release()
			for _, p := range []*process{h.process, w} {
				if _, err := p.succeed(); err != nil {
					return section{}, err
				}
			}
		}
	}
	s := section{
		how: "As above: one holds and one waits, and pages of the program are shared. The guard is a process of the same program; " +
			"who waits has it too if it is among the first eight.",
		head: []string{"process", "state", "samples", "RSS MiB", "Pss MiB", "private MiB"},
	}
	for _, r := range rows {
		s.rows = append(s.rows, []string{
			r.name, r.state, count(len(r.rss)), mib(median(r.rss)), mib(median(r.pss)), mib(median(r.private)),
		})
		own := strings.HasPrefix(r.name, "golock")
		if own {
			b.note("memory: "+r.name+", "+r.state+", RSS", "MiB", inMiB(r.rss))
			b.note("memory: "+r.name+", "+r.state+", private", "MiB", inMiB(r.private))
		}
		switch {
		case !own || r.state != "holding" || strings.Contains(r.name, "--on-lost"):
		case strings.HasSuffix(r.name, "its guard"):
			b.target(r.name+", private memory", 1.5, 0, " MiB", median(r.private)/1024)
		default:
			b.target(r.name+", RSS while holding", 10, 6, " MiB", median(r.rss)/1024)
			b.target(r.name+", private memory while holding", 2.5, 0, " MiB", median(r.private)/1024)
		}
		if r.state == "holding" {
			b.plotAs("memory", "", r.name, own, inMiB(r.rss))
		}
	}
	return s, nil
}

// guardsOf are the children of golock that are guards.
func guardsOf(pid int) []int {
	var guards []int
	for _, child := range childrenOf(pid) {
		argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if err == nil && bytes.HasPrefix(argv, []byte("golock-guard\x00")) {
			guards = append(guards, child)
		}
	}
	return guards
}
