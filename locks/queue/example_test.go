package queue_test

import (
	"fmt"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// A holder releases its slot while two others wait. The decision is what a store has to write.
func ExampleDecide() {
	claim := func(ticket int64) locks.Claim { return locks.Claim{Weight: 1, Max: 1, Ticket: ticket} }
	holder := queue.Entry{ID: "a", State: queue.Holding, Claim: claim(1), Slots: []int{0}, Fence: 2}
	view := queue.View{
		Counter: 4,
		Holders: []queue.Entry{holder},
		Waiters: []queue.Entry{
			{ID: "b", State: queue.Waiting, Claim: claim(3), Reachable: true},
			{ID: "c", State: queue.Waiting, Claim: claim(4), Reachable: true},
		},
		Caller: &holder,
		Total:  2,
	}
	d := queue.Decide(view, queue.Question{Step: queue.Release, Entry: holder})
	fmt.Println("the answer:", d.Verdict)
	for _, e := range d.Put {
		fmt.Printf("write %s: state %c, slots %v, fence %d\n", e.ID, e.State, e.Slots, e.Fence)
	}
	fmt.Println("wake:", d.Told)
	// Output:
	// the answer: released
	// write a: state G, slots [], fence 0
	// write b: state O, slots [0], fence 5
	// wake: [b]
}

// The second waiter sleeps until the first is overdue, unless somebody wakes it before.
func ExampleAbilities_AfterStep() {
	store := queue.Abilities{Wakes: 10, Connections: 20}
	view := queue.View{Waiters: []queue.Entry{
		{ID: "b", State: queue.Waiting, Left: 3 * time.Second},
		{ID: "c", State: queue.Waiting},
	}}
	nap := store.AfterStep(&view, queue.Waiter{Place: 2, Turns: 2, TTL: 30 * time.Second, IsWoken: true})
	fmt.Println(nap.For, nap.KeepsConnection)
	// Output:
	// 3.001s true
}
