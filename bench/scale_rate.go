package main

import (
	"fmt"
	"strconv"
)

// scaleRate measures how many grants a second a store gives, without the start
// of a process in each.
func (b *bench) scaleRate() error {
	stores, err := b.scaleStores()
	if err != nil {
		return err
	}
	defer stopStores(stores)
	p := b.plan.scale
	s := section{
		title: "Grants per second",
		how: fmt.Sprintf("One process takes a slot and gives it back, again and again for %d s, in one loop or in %d at a time that share a store, with a name for each or one for all. "+
			"No command is run. Server and process share the machine's processors.", p.seconds, p.lines),
		head: []string{"tool", "loops", "names", "grants/s", "ms p50", "p90", "p99", "server cpu ms per grant", "requests per grant", "client cpu ms per grant"},
	}
	for _, store := range stores {
		if store.url == nil {
			continue
		}
		for _, m := range []struct{ loops, names int }{{1, 1}, {p.lines, p.lines}, {p.lines, 1}} {
			l, err := b.place("rate")
			if err != nil {
				return err
			}
			var before, after work
			if store.work != nil {
				if before, err = store.work(); err != nil {
					return err
				}
			}
			t, err := b.startTickets("turn", store.url(l), "30s", l.name, strconv.Itoa(m.names), strconv.Itoa(m.loops), strconv.Itoa(p.seconds))
			if err != nil {
				return err
			}
			got, err := t.told()
			if err != nil {
				return err
			}
			if store.work != nil {
				if after, err = store.work(); err != nil {
					return err
				}
			}
			if err := t.in.Close(); err != nil {
				return err
			}
			if err := t.cmd.Wait(); err != nil {
				return err
			}
			cpu := float64(t.cmd.ProcessState.UserTime()+t.cmd.ProcessState.SystemTime()) / 1e6
			n := float64(len(got.Took))
			spent := after.since(before)
			s.rows = append(s.rows, []string{
				store.name, count(m.loops), count(m.names), fmt.Sprintf("%.0f", n/got.Lasted*1e3), fmt.Sprintf("%.3f", median(got.Took)),
				fmt.Sprintf("%.3f", quantile(got.Took, 0.9)), ms(quantile(got.Took, 0.99)),
				dash(store.server > 0, "%.3f", spent.cpu/n), dash(spent.statements > 0, "%.1f", float64(spent.statements)/n), fmt.Sprintf("%.3f", cpu/n),
			})
			if spent.statements > 0 && m.loops == 1 {
				b.note(fmt.Sprintf("scale: %s, requests for a free slot, taken and given back", store.name), "", []float64{float64(spent.statements) / n})
			}
		}
	}
	b.sections = append(b.sections, s)
	return nil
}
