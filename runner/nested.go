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
// golock only looks, and takes no later name out of turn. A run that held a later name while it waited for an
// earlier one could wait for a run that holds the earlier name and waits for the later one. The order of the
// names prevents that deadlock.

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

// refusalInside returns the refusal of a request whose lock an enclosing run holds, or nil if the request would
// get a slot, or if no enclosing run holds the lock. entries are those of the lock. On a local queue a holder
// counts only if it is an ancestor of this process: a job of at(1) has inherited GOLOCK_HELD too.
func refusalInside(r *locks.Request, entries []locks.Entry, isLocal bool) *locks.BusyError {
	busy := &locks.BusyError{Name: r.Name}
	var claims []locks.Claim
	isFirst := true // no waiter is before the request
	innermost := -1 // the index in r.Within of the innermost run that holds the lock
	for _, e := range entries {
		if e.State == locks.Waiting {
			busy.Waiters++
			isFirst = isFirst && e.Claim.Priority < r.Claim.Priority
			continue
		}
		busy.Holders = append(busy.Holders, e)
		claims = append(claims, e.Claim)
		if !e.Ended && (!isLocal || mayEnclose(e)) {
			innermost = max(innermost, slices.Index(r.Within, e.Ref))
		}
	}
	isAdmitted := isFirst && locks.Admits(claims, r.Claim)
	if innermost < 0 || isAdmitted {
		return nil
	}
	busy.Inside = &r.Within[innermost]
	return busy
}

// mayEnclose reports whether the golock of a holder on this machine may be an ancestor of this process.
func mayEnclose(e locks.Entry) bool {
	isAncestor, known := procfs.IsAncestor(e.PID)
	return isAncestor || !known || e.PID == 0
}
