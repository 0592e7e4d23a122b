package main

import (
	"fmt"
	"path/filepath"
)

// storesPlan says how much is measured of golock's other stores on one machine.
type storesPlan struct {
	start   int // rounds
	handoff int
	waiters int
	burst   int
	jobs    int
}

// storeTools are golock on each of its stores that need no server.
func (b *bench) storeTools() []*tool {
	file := func(scheme, name string) func(lock) string {
		return func(l lock) string { return scheme + "://" + filepath.Join(l.dir, name) }
	}
	ports := map[string]string{} // by lock
	port := func(l lock) string {
		if ports[l.name] == "" {
			free, err := freePort()
			if err != nil {
				free = "1" // which nobody gets: the run will say so
			}
			ports[l.name] = free
		}
		return "bind://127.0.0.1:" + ports[l.name]
	}
	tools := []*tool{b.tools["golock"]}
	for _, s := range []struct {
		name  string
		url   func(lock) string
		queue bool // ls shows it
		line  func(l lock) (int, error)
	}{
		{"flock", file("flock", "lock"), false, blocked},
		{"fcntl", file("fcntl", "lock"), false, blocked},
		{"bind, a socket", file("bind", "socket"), false, nil},
		{"bind, a port", port, false, nil},
		{"mkdir", file("mkdir", ""), true, inLine},
		{"symlink", file("symlink", ""), true, inLine},
		{"excl", file("excl", ""), true, inLine},
	} {
		t := golockTool("golock run, "+s.name, b.tools["golock"].path, s.url)
		if !s.queue {
			t.store = nil
		}
		t.waiting, t.polls = s.line, s.line == nil
		tools = append(tools, t)
	}
	return tools
}

// inLine counts the waiters of a store of lease files: each has a file that
// begins with q.
func inLine(l lock) (int, error) {
	found, err := filepath.Glob(filepath.Join(l.dir, "*", "line", "q.*"))
	return len(found), err
}

// stores compares golock's stores of one machine with each other.
func (b *bench) stores() error {
	tools := b.storeTools()
	local := tools[0].name
	p := b.plan.stores

	var starters []*starter
	for _, t := range tools {
		starters = append(starters, &starter{tool: t, base: local})
	}
	if err := b.startAll(p.start, starters); err != nil {
		return err
	}
	s := section{
		title: "golock's stores of one machine: start-up",
		how: "A run of /bin/true as above. Of mkdir, symlink and excl, which are for file systems without kernel locks, the command has a guard, as " +
			"on a server.",
		head: startHead,
	}
	for _, r := range starters {
		s.rows = append(s.rows, r.cells(starters[0]))
		b.noteRatio("stores-start", r.tool, r.wall, local, starters[0].wall)
	}
	b.sections = append(b.sections, s)

	var rows []*queued
	for _, t := range tools {
		rows = append(rows, &queued{tool: t, waiters: p.waiters})
	}
	if err := b.drainAll(p.handoff, rows, 0, 0); err != nil {
		return err
	}
	s = section{
		title: fmt.Sprintf("golock's stores of one machine: hand-off with %d waiting", p.waiters),
		how: "As above. flock and fcntl leave the order to the kernel; bind asks ten times a second and has none: its inversions are no fault, " +
			"and what it takes to drain a line of it is a matter of chance.",
		head: queuedHead,
	}
	for _, r := range rows {
		s.rows = append(s.rows, r.cells(rows[0]))
		b.noteRatio("stores-handoff", r.tool, r.typical, local, rows[0].typical)
		if r != rows[0] {
			b.plot("hand-off", fmt.Sprintf("golock's other stores of one machine, %d waiting", p.waiters), r.tool, r.gaps)
		}
	}
	b.sections = append(b.sections, s)

	var crowds []*crowd
	for _, t := range tools {
		crowds = append(crowds, &crowd{tool: t, jobs: p.jobs})
	}
	if err := b.burstAll(p.burst, crowds, b.stamp.section); err != nil {
		return err
	}
	s = section{
		title: fmt.Sprintf("golock's stores of one machine: burst of %d", p.jobs),
		how:   "As above.",
		head:  crowdHead,
	}
	for _, r := range crowds {
		s.rows = append(s.rows, r.cells(crowds[0]))
		b.noteRatio("stores-burst", r.tool, r.job, local, crowds[0].job)
	}
	b.sections = append(b.sections, s)
	return nil
}
