package locktest

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"golock/locks"
)

// event is one of a made-up history. One without times follows those before it; of the
// others the times are what counts.
type event struct {
	input
	output
	call, ret int64
}

func join(id, limit int, word string, more ...func(*event)) event {
	e := op(opJoin, id, word)
	e.claim = locks.Claim{Weight: 1, Max: limit}
	for _, m := range more {
		m(&e)
	}
	return e
}

func grant(id int, fence int64, slots ...int) event {
	return event{input: input{kind: opGrant, id: id}, output: output{fence: fence, slots: slots}}
}

func op(k kind, id int, word string) event {
	return event{input: input{kind: k, id: id}, output: output{word: word}}
}

func release(id int) event { return op(opRelease, id, "") }

func list(queue []int, holders ...listed) event {
	return event{input: input{kind: opList, id: -1}, output: output{queue: queue, holders: holders}}
}

func (e event) during(call, ret int64) event {
	e.call, e.ret = call, ret
	return e
}

func with(fence int64, slots ...int) func(*event) {
	return func(e *event) { e.fence, e.slots = fence, slots }
}
func weight(n int) func(*event)      { return func(e *event) { e.claim.Weight = n } }
func priority(n int) func(*event)    { return func(e *event) { e.claim.Priority = n } }
func maxQueue(n int) func(*event)    { return func(e *event) { e.maxQueue = &n } }
func within(ids ...int) func(*event) { return func(e *event) { e.input.within = ids } }
func onLock(n int) func(*event)      { return func(e *event) { e.lock = n } }
func noWait(e *event)                { e.noWait = true }
func hold(e *event)                  { e.hold = true }
func replaces(ids ...int) func(*event) {
	return func(e *event) { e.replace, e.replaced = locks.ReplaceRunning, ids }
}

// verdictOn asks the checker.
func verdictOn(of promises, events []event) porcupine.CheckResult {
	var history []porcupine.Operation
	for i, e := range events {
		if e.ret == 0 {
			e.call, e.ret = int64(10*i+10), int64(10*i+15)
		}
		history = append(history, porcupine.Operation{
			ClientId: i, Input: e.input, Output: e.output, Call: e.call, Return: e.ret,
		})
	}
	return check(newModel(2, of), history, of)
}

// The checker refuses what no store may do. It accepts what stores do: their own histories show that,
// and the rare cases are here.
func TestCheckerSees(t *testing.T) {
	const yes, no = porcupine.Ok, porcupine.Illegal
	kernel, sleepers := promises{unordered: true}, promises{unordered: true, sleepers: true}
	reserving := promises{reserving: true}
	beside := join(1, 2, "granted", with(2, 0)).during(3, 40) // it finds a free slot, and then a lower one
	lastIsReserved := []event{
		join(0, 2, "granted", with(1, 0)).during(1, 2), beside, join(2, 2, "busy", noWait).during(10, 11), release(0).during(20, 21),
	}
	listed0, behind0 := list([]int{0}).during(5, 6), join(1, 2, "queued").during(5, 6)
	long := func(limit int, more ...func(*event)) event {
		return join(0, limit, "granted", append(more, with(1, 0))...).during(1, 40)
	}
	first, second, third := join(0, 1, "granted", with(1, 0)), join(1, 1, "queued"), join(2, 1, "queued")
	for _, tt := range []struct {
		what   string
		of     promises
		events []event
		want   porcupine.CheckResult
	}{
		{"two hold what is for one", promises{}, []event{
			first, join(1, 1, "granted", with(2, 1)),
		}, no},
		{"the second is served first", promises{}, []event{
			first, second, third, release(0), grant(2, 2, 0), release(2), grant(1, 3, 0),
		}, no},
		{"the higher priority is not first", promises{}, []event{
			first, second, join(2, 1, "queued", priority(1)), release(0), grant(1, 2, 0), release(1), grant(2, 3, 0),
		}, no},
		{"one that does not wait overtakes a heavier waiter", promises{}, []event{
			join(0, 3, "granted", with(1, 0)), join(1, 3, "queued", weight(3)),
			join(2, 3, "granted", noWait, with(2, 1)),
		}, no},
		{"refused although it is free", promises{}, []event{
			first, release(0), join(1, 1, "busy", noWait),
		}, no},
		{"refused although another name is held", promises{}, []event{
			first, join(1, 1, "busy", noWait, onLock(1)),
		}, no},
		{"queued although it is free", promises{}, []event{join(0, 1, "queued"), grant(0, 1, 0)}, no},
		{"queued although it does not wait", promises{}, []event{first, join(1, 1, "queued", noWait)}, no},
		{"a slot is given twice", promises{}, []event{
			join(0, 2, "granted", with(1, 0)), join(1, 2, "granted", with(2, 0)),
		}, no},
		{"a slot that is not the lowest", promises{}, []event{join(0, 3, "granted", with(1, 1))}, no},
		{"a slot too few", promises{}, []event{join(0, 3, "granted", weight(2), with(1, 0))}, no},
		{"the fence stands still", promises{}, []event{
			first, release(0), join(1, 1, "granted", with(1, 0)),
		}, no},
		{"queued behind one that has it and does not know, and leaves", sleepers, []event{
			join(0, 1, "granted", with(0, 0)).during(1, 2), second.during(10, 11),
			op(opUnseen, 1, "").during(10, 40), release(0).during(20, 21),
			third.during(30, 31), op(opLeave, 1, "").during(38, 40), grant(2, 0, 0).during(30, 45),
		}, yes},
		{"granted beside one that has left only later", sleepers, []event{
			join(0, 1, "granted", with(0, 0)).during(1, 2), second.during(10, 11), release(0).during(20, 21),
			grant(1, 0, 0).during(10, 25),
			third.during(30, 31), grant(2, 0, 0).during(30, 45), release(1).during(50, 51),
		}, no},
		{"a release that is forgotten", promises{}, []event{
			first, release(0), list(nil, listed{id: 0, slots: []int{0}}),
		}, no},
		{"the list forgets a waiter", promises{}, []event{
			first, second, list(nil, listed{id: 0, slots: []int{0}}),
		}, no},
		{"one too many in the queue", promises{}, []event{
			first, join(1, 1, "queued", maxQueue(1)), join(2, 1, "queued", maxQueue(1)),
		}, no},
		{"turned away from a queue with room", promises{}, []event{
			first, join(1, 1, "busy", maxQueue(1)),
		}, no},
		{"a waiter that left is granted", promises{}, []event{
			first, second, op(opLeave, 1, ""), release(0), grant(1, 2, 0),
		}, no},
		{"a waiter that was evicted is granted", promises{}, []event{
			first, second, op(opEvict, 1, ""), release(0), grant(1, 2, 0),
		}, no},
		{"a waiter is told that it was evicted, and was not", promises{}, []event{
			first, second, op(opEvicted, 1, ""),
		}, no},
		{"evicted before it knows that it holds", promises{}, []event{
			join(0, 1, "evicted").during(1, 9), op(opEvict, 0, "").during(2, 3),
			join(1, 1, "busy", noWait).during(4, 5), op(opEvicted, 0, "").during(1, 9),
		}, yes},
		{"evicted, and nobody did that", promises{}, []event{join(0, 1, "evicted"), op(opEvicted, 0, "")}, no},
		{"an evicted holder is renewed", promises{}, []event{
			first, op(opEvict, 0, ""), op(opRenew, 0, ""),
		}, no},
		{"an evicted holder's slot is given away before it is back", promises{}, []event{
			first, op(opEvict, 0, ""), join(1, 1, "granted", with(2, 0)),
		}, no},
		{"nobody is evicted", promises{}, []event{first, release(0), op(opEvict, 0, "")}, no},
		{"a hold that ends with the release", promises{}, []event{
			join(0, 1, "granted", hold, with(1, 0)), release(0), join(1, 1, "granted", with(2, 0)),
		}, no},
		{"one inside waits for itself", promises{}, []event{first, join(1, 1, "queued", within(0))}, no},
		{"the newest replaces one that is not to be replaced", promises{}, []event{
			first, join(1, 1, "queued", replaces(0)),
		}, no},
		{"two hold, in the kernel's order", kernel, []event{
			join(0, 1, "granted", with(0, 0)), join(1, 1, "granted", with(0, 0)),
		}, no},
		{"listed as one that has it and does not know, and leaves", promises{}, []event{
			first.during(1, 2), second.during(3, 4), release(0).during(5, 6), op(opUnseen, 1, "").during(3, 40),
			list(nil, listed{id: 1, slots: []int{0}}).during(10, 11), op(opLeave, 1, "").during(20, 30),
		}, yes},
		{"refused although the last slot is free", promises{}, lastIsReserved, no},
		{"refused, and one that has its place takes the last slot", reserving, lastIsReserved, yes},
		{"refused although there is room beside one that takes its slot", reserving, []event{
			long(4), join(1, 4, "granted", noWait, with(0, 0)).during(2, 10), release(1).during(11, 12),
			join(2, 0, "busy", noWait).during(15, 20),
		}, no},
		{"turned away from a queue that has only one that takes its slot", reserving, []event{
			long(4), join(1, 4, "busy", maxQueue(1)).during(5, 6), listed0,
		}, no},
		{"listed as a waiter, and granted at once", promises{}, []event{long(1), listed0}, no},
		{"listed as a waiter until it takes its slot", reserving, []event{long(1), listed0}, yes},
		{"listed as a waiter, and does not wait", reserving, []event{long(1, noWait), listed0}, no},
		{"queued beside one that has its slot", promises{}, []event{long(2), behind0}, no},
		{"queued behind one that takes its slot", reserving, []event{long(2), behind0, grant(1, 2, 1).during(5, 50)}, yes},
		{"another one takes the slot that one has queued for", reserving, []event{
			join(0, 1, "queued").during(1, 40), listed0, join(1, 1, "granted", priority(1), with(1, 0)).during(10, 20),
			release(1).during(50, 51), grant(0, 2, 0).during(1, 60),
		}, yes},
		{"queued although it is free, and nobody else comes", reserving, []event{join(0, 1, "queued"), grant(0, 1, 0)}, no},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if got := verdictOn(tt.of, tt.events); got != tt.want {
				t.Errorf("the checker says %s, want %s\n%s", got, tt.want, fmt.Sprint(tt.events))
			}
		})
	}
}
