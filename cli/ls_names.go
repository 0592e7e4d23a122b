package cli

import (
	"context"
	"slices"

	"golock/locks"
)

// maxNextLooks limits how many other names ls NAME looks at: other users may have written any number of
// them into the store.
const maxNextLooks = 64

// addWaitsFor adds to the holders among entries the name that their run waits for, if it has several names and
// does not have all of them yet. The entries belong to the given name, or to all names if it is "".
func addWaitsFor(ctx context.Context, store locks.KnownStore, name string, entries []locks.Entry) {
	hasNext := func(e locks.Entry) bool { return e.Next != "" }
	if !slices.ContainsFunc(entries, hasNext) {
		return
	}
	known := map[string][]locks.Entry{}
	for _, e := range entries {
		known[e.Name] = append(known[e.Name], e)
	}
	looks := 0
	entriesOf := func(next string) []locks.Entry {
		others, isKnown := known[next]
		if !isKnown && name != "" && looks < maxNextLooks {
			looks++
			others, _ = store.Entries(ctx, next) // after an error nothing is known to wait
			known[next] = others
		}
		return others
	}
	for i := range entries {
		e := &entries[i]
		if e.State == locks.Holding && !e.Ended && e.Next != "" {
			e.WaitsFor = waitsFor(e, entriesOf)
		}
	}
}

// waitsFor returns the name that a run waits for, or "". It follows the entries of the run, each of which
// tells the next name.
func waitsFor(e *locks.Entry, entriesOf func(name string) []locks.Entry) string {
	next := e.Next
	for range maxNames { // other users may have written entries that lead in a circle
		var other *locks.Entry
		for _, candidate := range entriesOf(next) {
			if candidate.Ref.IsOfRun(e.Ref) {
				other = &candidate
			}
		}
		switch {
		case next == "" || other == nil:
			return ""
		case other.State == locks.Waiting:
			return next
		}
		next = other.Next
	}
	return ""
}
