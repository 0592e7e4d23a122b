package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
)

// holders is how many processes share the names: of a local store each name is
// some open files.
const holders = 4

// scaleNames measures what many names at once cost, and whether they slow one
// another down.
func (b *bench) scaleNames() error {
	stores, err := b.scaleStores()
	if err != nil {
		return err
	}
	defer stopStores(stores)
	empty, err := b.scaleStores()
	if err != nil {
		return err
	}
	defer stopStores(empty)
	p := b.plan.scale
	s := section{
		title: fmt.Sprintf("%d names and more, all held", p.rows),
		how: fmt.Sprintf("On this machine each name is taken and given back once; then %d processes take them all, eight at a time each. First and last ones: the median of the first and "+
			"the last twentieth of what a process took. New names: taken and given back while all others are held. "+
			"Kept is what files, memory or table have grown by, by name. On an SQL server there are fewer: a holder keeps its connection for a second, so that no more can begin in a second than the server has connections. Start-up is that of a run of /bin/true under one name more, beside a store without any, in interleaved rounds. Times are medians.", holders),
		head: []string{"tool", "names", "first use, ms each", "held, names/s", "first ones, ms each", "last ones, ms each", "a new name beside them, ms", "KiB kept by name", "`golock ls` ms", "start-up ms", "against an empty store", "server cpu ms per renewal"},
	}
	for i, store := range stores {
		if store.url == nil {
			continue
		}
		l, err := b.place("names")
		if err != nil {
			return err
		}
		row, err := b.namesOf(store, empty[i], l)
		if err != nil {
			return fmt.Errorf("%s: %w", store.name, err)
		}
		s.rows = append(s.rows, row)
	}
	b.sections = append(b.sections, s)
	return nil
}

func (b *bench) namesOf(store, empty *scaleStore, l lock) ([]string, error) {
	p := b.plan.scale
	before, err := store.size(l)
	if err != nil {
		return nil, err
	}
	// Every name is used once before all are held, as they have been where they
	// are used day by day.
	var visited, first, last []float64
	for k := range holders {
		if store.server > 0 { // to a server it makes no difference
			break
		}
		t, err := b.startTickets("visit", store.url(l), "1h", fmt.Sprintf("%s-%d-", l.name, k), strconv.Itoa(store.names/holders))
		if err != nil {
			return nil, err
		}
		got, err := t.finish()
		if err != nil {
			return nil, err
		}
		visited = append(visited, got.Took...)
	}
	var all []*ticketsProcess
	begun := now()
	for k := range holders {
		t, err := b.startTickets("hold", store.url(l), "1h", fmt.Sprintf("%s-%d-", l.name, k), strconv.Itoa(store.names/holders))
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	for _, t := range all {
		got, err := t.told()
		if err != nil {
			return nil, err
		}
		part := len(got.Took) / 20
		first, last = append(first, got.Took[:part]...), append(last, got.Took[len(got.Took)-part:]...)
	}
	lasted := now() - begun
	t, err := b.startTickets("visit", store.url(l), "1h", l.name+"-new-", "4")
	if err != nil {
		return nil, err
	}
	fresh, err := t.finish()
	if err != nil {
		return nil, err
	}
	after, err := store.size(l)
	if err != nil {
		return nil, err
	}
	kept := (after - before) / float64(store.names)
	if store.scheme == "redis" {
		b.constants.nameKiB = kept
		b.note("scale: golock run, redis, memory by name", "KiB", []float64{kept})
	}

	ls := exec.Command(b.tools["golock"].path, "ls", "--json", "--store", store.url(l))
	ls.Env = b.env
	begun = now()
	out, err := ls.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ls, err)
	}
	listed := now() - begun
	var entries []json.RawMessage
	if err := json.Unmarshal(out, &entries); err != nil {
		return nil, err
	}
	if len(entries) != store.names/holders*holders {
		return nil, fmt.Errorf("golock ls lists %d entries of %d", len(entries), store.names)
	}

	// The same name over and over, beside the others and in a store that has none.
	other, err := b.place("names")
	if err != nil {
		return nil, err
	}
	at := func(name string, s *scaleStore, l lock) *starter {
		return &starter{tool: golockTool(name, b.tools["golock"].path, func(lock) string { return s.url(l) })}
	}
	rows := []*starter{at("empty", empty, other), at("full", store, l)}
	if err := b.startAll(p.more, rows); err != nil {
		return nil, err
	}
	beside := rows[1].wall.against(rows[0].wall)
	b.note(fmt.Sprintf("scale: %s, start-up beside %d names, against none", store.name, store.names), "x", rows[1].wall.ratios(rows[0].wall))
	b.target(fmt.Sprintf("%s: start-up beside %d names, against none", store.scheme, store.names), 1.1, 0, "x", beside)

	renewal := "-"
	if store.server > 0 {
		before, err := store.work()
		if err != nil {
			return nil, err
		}
		n := min(p.renewals, store.names/holders)
		if _, err := all[0].renew(n); err != nil {
			return nil, err
		}
		after, err := store.work()
		if err != nil {
			return nil, err
		}
		each := after.since(before).cpu / float64(n)
		renewal = fmt.Sprintf("%.3f", each)
		if store.scheme == "redis" {
			b.constants.renewalCPU = each
		}
	}
	for _, t := range all {
		if _, err := t.finish(); err != nil {
			return nil, err
		}
	}
	return []string{
		store.name, count(store.names), dash(store.server == 0, "%.2f", median(visited)), fmt.Sprintf("%.0f", float64(store.names)/lasted*1e3), ms(median(first)), ms(median(last)), ms(median(fresh.Took)), fmt.Sprintf("%.2f", kept), fmt.Sprintf("%.0f", listed),
		ms(median(rows[1].wall.values())), ratio(beside), renewal,
	}, nil
}
