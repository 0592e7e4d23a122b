package cli

import (
	"context"
	"slices"

	"golock/locks"
)

// maxNextLooks is how many other names ls NAME looks at: others may have written any number of them.
const maxNextLooks = 64

// addWaitsFor adds to the holders among entries the name that their run waits for, if it has several names and
// does not have all of them yet. entries are those of the name, or of all names ("").
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
	entriesOf := func(of string) []locks.Entry {
		others, isKnown := known[of]
		if !isKnown && name != "" && looks < maxNextLooks {
			looks++
			others, _ = store.Entries(ctx, of) // what cannot be read is not known to wait
			known[of] = others
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

// waitsFor follows the entries of a run, each of which tells the name of the next one.
func waitsFor(e *locks.Entry, entriesOf func(name string) []locks.Entry) string {
	next := e.Next
	for range maxNames { // others may have written the entries
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
