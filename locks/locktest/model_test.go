package locktest

import (
	"fmt"
	"testing"

	"github.com/anishathalye/porcupine"

	"golock/locks"
)

// deed is an event of a made-up history. One without times follows those before
// it; of the others the times are what counts.
type deed struct {
	asked
	told
	call, ret int64
}

func came(id, limit int, word string, more ...func(*deed)) deed {
	d := deed{asked: asked{kind: joining, id: id, claim: locks.Claim{Weight: 1, Max: limit}}, told: told{word: word}}
	for _, m := range more {
		m(&d)
	}
	return d
}

func got(id int, fence int64, slots ...int) deed {
	return deed{asked: asked{kind: granting, id: id}, told: told{fence: fence, slots: slots}}
}

func with(fence int64, slots ...int) func(*deed) {
	return func(d *deed) { d.fence, d.slots = fence, slots }
}

func did(k kind, id int, word string) deed {
	return deed{asked: asked{kind: k, id: id}, told: told{word: word}}
}

func (d deed) during(call, ret int64) deed {
	d.call, d.ret = call, ret
	return d
}

func heavy(n int) func(*deed)       { return func(d *deed) { d.claim.Weight = n } }
func urgent(n int) func(*deed)      { return func(d *deed) { d.claim.Priority = n } }
func hasty(d *deed)                 { d.noWait = true }
func atMost(n int) func(*deed)      { return func(d *deed) { d.most = &n } }
func long(d *deed)                  { d.hold = true }
func inside(ids ...int) func(*deed) { return func(d *deed) { d.asked.within = ids } }
func onLock(n int) func(*deed)      { return func(d *deed) { d.lock = n } }
func newest(ids ...int) func(*deed) {
	return func(d *deed) { d.replace, d.replaced = locks.ReplaceRunning, ids }
}
func replaceable(d *deed) { d.replace = locks.ReplaceRunning }
func looked(queue []int, holders ...seen) deed {
	return deed{asked: asked{kind: listing, id: -1}, told: told{queue: queue, holders: holders}}
}

// verdictOn asks the checker.
func verdictOn(of promises, deeds []deed) porcupine.CheckResult {
	var history []porcupine.Operation
	for i, d := range deeds {
		if d.ret == 0 {
			d.call, d.ret = int64(10*i+10), int64(10*i+15)
		}
		history = append(history, porcupine.Operation{ClientId: i, Input: d.asked, Output: d.told, Call: d.call, Return: d.ret})
	}
	return decide(machine(2, of), history, of)
}

// What no store may do is seen, and what it may do is not taken for that.
func TestCheckerSees(t *testing.T) {
	kernel := promises{unordered: true}
	for _, tt := range []struct {
		what  string
		of    promises
		deeds []deed
		want  porcupine.CheckResult
	}{
		{"one after the other", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), did(giving, 0, ""), got(1, 2, 0), did(giving, 1, ""),
		}, porcupine.Ok},
		{"two hold what is for one", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "granted", with(2, 1)),
		}, porcupine.Illegal},
		{"more units than the smallest max", promises{}, []deed{
			came(0, 2, "granted", with(1, 0)), came(1, 5, "granted", with(2, 1)), came(2, 5, "granted", with(3, 2)),
		}, porcupine.Illegal},
		{"more units than its own max", promises{}, []deed{
			came(0, 5, "granted", with(1, 0)), came(1, 5, "granted", with(2, 1)), came(2, 2, "granted", with(3, 2)),
		}, porcupine.Illegal},
		{"granted before the release began", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued").during(20, 25), got(1, 2, 0).during(20, 29), did(giving, 0, "").during(30, 35),
		}, porcupine.Illegal},
		{"granted while the release was under way", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued").during(20, 25), got(1, 2, 0).during(20, 31), did(giving, 0, "").during(30, 35),
		}, porcupine.Ok},
		{"the second is served first", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), came(2, 1, "queued"), did(giving, 0, ""), got(2, 2, 0), did(giving, 2, ""), got(1, 3, 0),
		}, porcupine.Illegal},
		{"of two that came at once either may be first", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)).during(1, 2), came(1, 1, "queued").during(10, 20), came(2, 1, "queued").during(11, 19),
			did(giving, 0, "").during(30, 31), got(2, 2, 0).during(32, 33), did(giving, 2, "").during(34, 35), got(1, 3, 0).during(36, 37),
		}, porcupine.Ok},
		{"the higher priority is not first", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), came(2, 1, "queued", urgent(1)), did(giving, 0, ""), got(1, 2, 0), did(giving, 1, ""), got(2, 3, 0),
		}, porcupine.Illegal},
		{"one that does not wait overtakes a heavier waiter", promises{}, []deed{
			came(0, 3, "granted", with(1, 0)), came(1, 3, "queued", heavy(3)), came(2, 3, "granted", hasty, with(2, 1)),
		}, porcupine.Illegal},
		{"and is refused for its sake", promises{}, []deed{
			came(0, 3, "granted", with(1, 0)), came(1, 3, "queued", heavy(3)), came(2, 3, "busy", hasty),
		}, porcupine.Ok},
		{"refused although it is free", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), did(giving, 0, ""), came(1, 1, "busy", hasty),
		}, porcupine.Illegal},
		{"refused although another name is held", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "busy", hasty, onLock(1)),
		}, porcupine.Illegal},
		{"queued although it is free", promises{}, []deed{came(0, 1, "queued"), got(0, 1, 0)}, porcupine.Illegal},
		{"queued although it does not wait", promises{}, []deed{came(0, 1, "granted", with(1, 0)), came(1, 1, "queued", hasty)}, porcupine.Illegal},
		{"a slot is given twice", promises{}, []deed{came(0, 2, "granted", with(1, 0)), came(1, 2, "granted", with(2, 0))}, porcupine.Illegal},
		{"a slot that is not the lowest", promises{}, []deed{came(0, 3, "granted", with(1, 1))}, porcupine.Illegal},
		{"a slot too few", promises{}, []deed{came(0, 3, "granted", heavy(2), with(1, 0))}, porcupine.Illegal},
		{"the fence stands still", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), did(giving, 0, ""), came(1, 1, "granted", with(1, 0)),
		}, porcupine.Illegal},
		{"the fence goes back", promises{}, []deed{
			came(0, 1, "granted", with(2, 0)), did(giving, 0, ""), came(1, 1, "granted", with(1, 0)),
		}, porcupine.Illegal},
		{"queued behind one that has it and does not know, and leaves", promises{unordered: true, sleepers: true}, []deed{
			came(0, 1, "granted", with(0, 0)).during(1, 2), came(1, 1, "queued").during(10, 11), did(unseen, 1, "").during(10, 40), did(giving, 0, "").during(20, 21),
			came(2, 1, "queued").during(30, 31), did(leaving, 1, "").during(38, 40), got(2, 0, 0).during(30, 45),
		}, porcupine.Ok},
		{"granted beside one that has left only later", promises{unordered: true, sleepers: true}, []deed{
			came(0, 1, "granted", with(0, 0)).during(1, 2), came(1, 1, "queued").during(10, 11), did(giving, 0, "").during(20, 21), got(1, 0, 0).during(10, 25),
			came(2, 1, "queued").during(30, 31), got(2, 0, 0).during(30, 45), did(giving, 1, "").during(50, 51),
		}, porcupine.Illegal},
		{"a release that is forgotten", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), did(giving, 0, ""), looked(nil, seen{id: 0, slots: []int{0}}),
		}, porcupine.Illegal},
		{"the list forgets a waiter", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), looked(nil, seen{id: 0, slots: []int{0}}),
		}, porcupine.Illegal},
		{"one too many in the queue", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued", atMost(1)), came(2, 1, "queued", atMost(1)),
		}, porcupine.Illegal},
		{"turned away from a queue with room", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "busy", atMost(1)),
		}, porcupine.Illegal},
		{"a waiter that left is granted", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), did(leaving, 1, ""), did(giving, 0, ""), got(1, 2, 0),
		}, porcupine.Illegal},
		{"a waiter that was evicted is granted", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), did(evicting, 1, ""), did(giving, 0, ""), got(1, 2, 0),
		}, porcupine.Illegal},
		{"a waiter is told that it was evicted, and was not", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued"), did(dismissed, 1, ""),
		}, porcupine.Illegal},
		{"evicted before it knows that it holds", promises{}, []deed{
			came(0, 1, "evicted").during(1, 9), did(evicting, 0, "").during(2, 3), came(1, 1, "busy", hasty).during(4, 5), did(dismissed, 0, "").during(1, 9),
		}, porcupine.Ok},
		{"evicted, and nobody did that", promises{}, []deed{came(0, 1, "evicted"), did(dismissed, 0, "")}, porcupine.Illegal},
		{"an evicted holder is renewed", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), did(evicting, 0, ""), did(renewing, 0, ""),
		}, porcupine.Illegal},
		{"an evicted holder's slot is given away before it is back", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), did(evicting, 0, ""), came(1, 1, "granted", with(2, 0)),
		}, porcupine.Illegal},
		{"nobody is evicted", promises{}, []deed{came(0, 1, "granted", with(1, 0)), did(giving, 0, ""), did(evicting, 0, "")}, porcupine.Illegal},
		{"a hold that ends with the release", promises{}, []deed{
			came(0, 1, "granted", long, with(1, 0)), did(giving, 0, ""), came(1, 1, "granted", with(2, 0)),
		}, porcupine.Illegal},
		{"a hold that ends in its time", promises{}, []deed{
			came(0, 1, "granted", long, with(1, 0)), did(giving, 0, ""), came(1, 1, "busy", hasty), did(holdOver, 0, "").during(1, forever), came(2, 1, "granted", with(2, 0)),
		}, porcupine.Ok},
		{"a hold that is taken back", promises{}, []deed{
			came(0, 1, "granted", long, with(1, 0)), did(giving, 0, ""), did(evicting, 0, ""), came(1, 1, "granted", with(2, 0)),
		}, porcupine.Ok},
		{"one inside waits for itself", promises{}, []deed{came(0, 1, "granted", with(1, 0)), came(1, 1, "queued", inside(0))}, porcupine.Illegal},
		{"the newest replaces who holds", promises{}, []deed{
			came(0, 1, "granted", replaceable, with(1, 0)), came(1, 1, "queued", newest(0)), did(renewing, 0, "evicted"), did(giving, 0, ""), got(1, 2, 0),
		}, porcupine.Ok},
		{"the newest replaces one that is not to be replaced", promises{}, []deed{
			came(0, 1, "granted", with(1, 0)), came(1, 1, "queued", newest(0)),
		}, porcupine.Illegal},
		{"the kernel's order is its own", kernel, []deed{
			came(0, 1, "granted", with(0, 0)), came(1, 1, "queued"), came(2, 1, "queued"), did(giving, 0, ""), got(2, 0, 0), did(giving, 2, ""), got(1, 0, 0),
		}, porcupine.Ok},
		{"but two do not hold", kernel, []deed{came(0, 1, "granted", with(0, 0)), came(1, 1, "granted", with(0, 0))}, porcupine.Illegal},

		// A reader comes while a writer leaves the queue, the writer before them has
		// just been granted without knowing it and leaves too, a hold ends in
		// between, and the list sees a moment of it.
		{"everything at once", promises{}, []deed{
			came(0, 1, "granted", long, with(10, 0)).during(1, 2),
			came(1, 1, "queued").during(3, 4),
			came(2, 1, "queued").during(5, 6),
			did(giving, 0, "").during(7, 8),
			did(holdOver, 0, "").during(9, forever),
			did(unseen, 1, "").during(3, 40),
			came(3, 0, "queued").during(10, 12),
			came(4, 0, "busy", hasty).during(13, 14),
			looked([]int{2, 3}, seen{id: 1, slots: []int{0}}).during(15, 30),
			did(leaving, 1, "").during(20, 40),
			did(leaving, 2, "").during(21, 41),
			got(3, 12, 0).during(10, 42),
			came(5, 0, "granted", with(13, 1)).during(35, 43),
			looked(nil, seen{id: 3, slots: []int{0}}, seen{id: 5, slots: []int{1}}).during(44, 45),
		}, porcupine.Ok},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if got := verdictOn(tt.of, tt.deeds); got != tt.want {
				t.Errorf("the checker says %s, want %s\n%s", got, tt.want, fmt.Sprint(tt.deeds))
			}
		})
	}
}
