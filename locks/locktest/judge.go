package locktest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdictLimit is for the judgement of one history: it is a search.
const verdictLimit = 5 * time.Second

// replay is the command that runs a history again.
func replay(t *testing.T, seed uint64) string {
	return fmt.Sprintf("LOCKTEST_SEED=%d go test -race -tags integration -count=1 -run '^%s$' .",
		seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
}

// rank tells each grant how many come before it by their fences, which is where
// it must stand, and which slots were given back, or taken, while it was made.
func rank(history []porcupine.Operation, of promises) {
	var grants []*porcupine.Operation
	slots := map[int][]int{}
	for i := range history {
		o := &history[i]
		q, a := o.Input.(asked), o.Output.(told)
		if q.kind == granting || (q.kind == joining && a.word == "granted") {
			grants, slots[q.id] = append(grants, o), a.slots
		}
	}
	for _, g := range grants {
		q, a := g.Input.(asked), g.Output.(told)
		if q.rank = 0; of.unordered {
			q.rank = -1
		}
		for _, o := range grants {
			if q.rank >= 0 && o.Input.(asked).lock == q.lock && o.Output.(told).fence < a.fence {
				q.rank++
			}
		}
		for _, o := range history {
			p := o.Input.(asked)
			moves := p.kind == giving || p.kind == holdOver || p.kind == evicting
			if of.scanning && moves && p.lock == q.lock && o.Call <= g.Return && g.Call <= o.Return {
				q.fading = append(q.fading, slots[p.id]...)
			}
		}
		g.Input = q
	}
}

// machine is the state machine of several names for the checker.
func machine(names int, of promises) porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			parts = make([][]porcupine.Operation, names)
			for _, o := range all {
				lock := o.Input.(asked).lock
				parts[lock] = append(parts[lock], o)
			}
			return parts
		},
		Init: func() any { return line{promises: of} },
		Step: func(state, q, a any) (bool, any) {
			next, ok := state.(line).after(q.(asked), a.(told))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a.(line).key() == b.(line).key() },
		Hash:              func(a any) uint64 { return a.(line).hash() },
		DescribeOperation: func(q, a any) string { return strings.TrimSpace(fmt.Sprintf("%v: %v", q, a)) },
		DescribeState:     func(state any) string { return state.(line).String() },
	}
}

// decide says whether a history is one of the state machine's.
func decide(model porcupine.Model, history []porcupine.Operation, of promises) porcupine.CheckResult {
	rank(history, of)
	// What nobody has seen is rarely needed, and makes the search long.
	sight := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool { return o.Input.(asked).kind == unseen })
	result := porcupine.CheckOperationsTimeout(model, sight, verdictLimit)
	if result == porcupine.Illegal && len(sight) < len(history) {
		result = porcupine.CheckOperationsTimeout(model, history, verdictLimit)
	}
	return result
}

// judge demands that the history is one of the state machine's. It returns how
// many events there were, and whether it came to a verdict in time.
func (c *crowd) judge() (events int, decided bool) {
	model := machine(c.mix.locks, c.promises)
	result := decide(model, c.history, c.promises)
	if result != porcupine.Illegal && c.broken == nil {
		return len(c.history), result == porcupine.Ok
	}
	c.t.Errorf("%s\nagain: %s", c.verdict(result), replay(c.t, c.seed))
	if result == porcupine.Illegal {
		_, info := porcupine.CheckOperationsVerbose(model, c.history, verdictLimit)
		c.t.Log(c.furthest(info))
		if f, err := os.CreateTemp("", "golock-history-*.html"); err == nil {
			defer f.Close()
			if porcupine.Visualize(model, info, f) == nil {
				c.t.Logf("drawn in %s", f.Name())
			}
		}
	}
	return len(c.history), true
}

// furthest tells how far an order can go, and what cannot follow.
func (c *crowd) furthest(info porcupine.LinearizationInfo) string {
	var b strings.Builder
	for lock, orders := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, o := range orders {
			if len(o) > len(longest) {
				longest = o
			}
		}
		state, done := line{promises: c.promises}, map[string]bool{}
		fmt.Fprintf(&b, "lock %d, as far as it goes:", lock)
		for _, o := range longest {
			q, a := o.Input.(asked), o.Output.(told)
			done[fmt.Sprint(q, a, o.Call)] = true
			state, _ = state.after(q, a)
			fmt.Fprintf(&b, "\n    %v: %v   => %v", q, a, state)
		}
		b.WriteString("\n  and not in it:")
		for _, o := range c.history {
			if q, a := o.Input.(asked), o.Output.(told); q.lock == lock && !done[fmt.Sprint(q, a, o.Call)] {
				fmt.Fprintf(&b, "\n    from %d us: %v: %v", o.Call/1000, q, a)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// verdict tells what is wrong, and the whole history.
func (c *crowd) verdict(result porcupine.CheckResult) string {
	var b strings.Builder
	switch {
	case c.broken != nil:
		fmt.Fprintf(&b, "%v (the history is %s)", c.broken, result)
	default:
		b.WriteString("there is no order in which this could have happened one after the other")
	}
	slices.SortStableFunc(c.history, func(a, b porcupine.Operation) int { return int(min(max(a.Call-b.Call, -1), 1)) })
	for _, o := range c.history {
		until := strconv.FormatInt(o.Return/1000, 10)
		if o.Return == forever {
			until = "..."
		}
		fmt.Fprintf(&b, "\n%8d to %8s us  lock %d  worker %d  %v: %v", o.Call/1000, until, o.Input.(asked).lock, o.ClientId, o.Input, o.Output)
	}
	return b.String()
}
