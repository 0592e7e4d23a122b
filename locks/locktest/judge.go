package locktest

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"golock/locks"
)

// verdictLimit limits the time to judge one history, because the checker searches for an order of its events.
const verdictLimit = 5 * time.Second

// replay is the command that runs a history again.
func replay(t *testing.T, seed uint64) string {
	return fmt.Sprintf("LOCKTEST_SEED=%d go test -race -tags integration -count=1 -run '^%s$' .",
		seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
}

// rank sets the fields rank and changing of the input of each grant.
func rank(history []porcupine.Operation, of promises) {
	var grants []*porcupine.Operation
	slots := map[int][]int{}
	for i := range history {
		o := &history[i]
		in, out := o.Input.(input), o.Output.(output)
		if in.kind == opGrant || (in.kind == opJoin && out.word == "granted") {
			grants, slots[in.id] = append(grants, o), out.slots
		}
	}
	for _, g := range grants {
		in, out := g.Input.(input), g.Output.(output)
		if in.rank = 0; of.unordered {
			in.rank = -1
		}
		for _, o := range grants {
			if in.rank >= 0 && o.Input.(input).lock == in.lock && o.Output.(output).fence < out.fence {
				in.rank++
			}
		}
		for _, o := range history {
			other := o.Input.(input)
			moves := other.kind == opRelease || other.kind == opHoldEnd || other.kind == opEvict
			if of.scanning && moves && other.lock == in.lock && o.Call <= g.Return && g.Call <= o.Return {
				in.changing = append(in.changing, slots[other.id]...)
			}
		}
		g.Input = in
	}
}

// newModel returns the model of several names for the checker.
func newModel(names int, of promises) porcupine.Model {
	seed := maphash.MakeSeed()
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			parts = make([][]porcupine.Operation, names)
			for _, o := range all {
				lock := o.Input.(input).lock
				parts[lock] = append(parts[lock], o)
			}
			return parts
		},
		Init: func() any { return queue{promises: of} },
		Step: func(state, in, out any) (bool, any) {
			next, ok := state.(queue).after(in.(input), out.(output))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(queue).String() == b.(queue).String() },
		Hash:  func(a any) uint64 { return maphash.String(seed, a.(queue).String()) },
	}
}

// check searches for an order of a history that the model allows.
func check(model porcupine.Model, history []porcupine.Operation, of promises) porcupine.CheckResult {
	rank(history, of)
	// Grants and places that nobody has seen are rarely needed, and make the search long.
	seen := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool {
		return o.Input.(input).kind == opUnseen
	})
	all := append(slices.Clone(history), reservations(history, of)...)
	result := porcupine.CheckOperationsTimeout(model, seen, verdictLimit)
	if result == porcupine.Illegal && len(seen) < len(all) {
		result = porcupine.CheckOperationsTimeout(model, all, verdictLimit)
	}
	return result
}

// reservations returns an event for each place that a join may have had before it took its slot. Only a request
// that may wait in any queue can have had one.
func reservations(history []porcupine.Operation, of promises) (all []porcupine.Operation) {
	for _, o := range history {
		in, word := o.Input.(input), o.Output.(output).word
		mayWait := !in.noWait && in.maxQueue == nil && in.replace == locks.ReplaceNone && len(in.within) == 0
		if of.reserving && in.kind == opJoin && mayWait && (word == "granted" || word == "queued") {
			in.kind = opReserve
			o.Input, o.Output = in, output{}
			all = append(all, o)
		}
	}
	return all
}

// judge expects that the model allows the history. It returns the number of events, and whether the checker came
// to a verdict in time.
func (c *workload) judge() (events int, decided bool) {
	result := check(newModel(c.mix.locks, c.promises), c.history, c.promises)
	if result != porcupine.Illegal && c.broken == nil {
		return len(c.history), result == porcupine.Ok
	}
	c.t.Errorf("%s\nagain: %s", c.verdict(result), replay(c.t, c.seed))
	return len(c.history), true
}

// verdict returns a text with what is wrong and with the whole history.
func (c *workload) verdict(result porcupine.CheckResult) string {
	var b strings.Builder
	if c.broken != nil {
		fmt.Fprintf(&b, "%v (the history is %s)", c.broken, result)
	} else {
		b.WriteString("there is no order in which this could have happened one after the other")
	}
	slices.SortStableFunc(c.history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range c.history {
		until := fmt.Sprint(o.Return / 1000)
		if o.Return == never {
			until = "..."
		}
		fmt.Fprintf(&b, "\n%8d to %8s us  lock %d  worker %d  %v: %v",
			o.Call/1000, until, o.Input.(input).lock, o.ClientId, o.Input, o.Output)
	}
	return b.String()
}
