package runner

import (
	"context"
	"slices"

	"golock/internal/procfs"
	"golock/locks"
)

// A run inside a run that holds one of its names never waits for that name: it gets a free slot at once, or is
// refused (locks.Request.Within). With several names another one may come first and be busy. The run around
// it would go on only after that wait, to end with a refusal that was certain before. So golock looks at the
// later names before it waits.
//
// It only looks. A run that took such a name out of turn, and then waited for one before it, would hold a slot
// that somebody who holds the earlier name waits for: the order of the names is what prevents that. A run
// that was refused holds nothing and waits for nobody, so the look makes no deadlock possible.

// refusedInside returns the refusal of a name that the run would take after the one that it is about to wait
// for, or nil. Whether a name that is not refused now is refused at its turn depends on what others do.
func (a *attempt) refusedInside(store locks.KnownStore) error {
	for _, r := range a.wanted[len(a.holding())+1:] {
		if len(r.Within) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(a.ctx, lookLimit)
		entries, _ := store.Entries(ctx, r.Name) // after an error the name is refused at its turn
		cancel()
		if busy := refusalInside(&r, entries, store.IsLocalQueue); busy != nil {
			return busy
		}
	}
	return nil
}

// refusalInside returns the refusal of a request that some of the entries of its lock enclose, or nil if it
// would get a slot, or is not inside. On a local queue the request may be from a process that only has
// inherited GOLOCK_HELD.
func refusalInside(r *locks.Request, entries []locks.Entry, isLocal bool) *locks.BusyError {
	busy := &locks.BusyError{Name: r.Name}
	var claims []locks.Claim
	isFirst := true
	innermost := -1
	for _, e := range entries {
		if e.State == locks.Waiting {
			busy.Waiters++
			isFirst = isFirst && e.Claim.Priority < r.Claim.Priority
			continue
		}
		busy.Holders, claims = append(busy.Holders, e), append(claims, e.Claim)
		if !e.Ended && (!isLocal || mayEnclose(e)) {
			innermost = max(innermost, slices.Index(r.Within, e.Ref))
		}
	}
	if innermost < 0 || isFirst && locks.Admits(claims, r.Claim) {
		return nil
	}
	busy.Inside = &r.Within[innermost]
	return busy
}

// mayEnclose reports whether this process may be part of what a holder on this machine runs.
func mayEnclose(e locks.Entry) bool {
	isAncestor, known := procfs.IsAncestor(e.PID)
	return isAncestor || !known || e.PID == 0
}
