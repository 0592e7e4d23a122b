package queue_test

import (
	"testing"
	"time"

	"golock/locks/queue"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// The stores of the tests below: a database, one whose clients nobody can wake, and files.
var (
	database = queue.Abilities{Wakes: 32, Connections: 100, Peeks: queue.Spacing{Least: 50 * ms, LeastPerTurn: 15 * ms}}
	pooler   = queue.Abilities{Connections: 100, Peeks: database.Peeks}
	shared   = queue.Abilities{Observes: true, Peeks: queue.Spacing{LeastPerTurn: 2 * ms, Most: 100 * ms, MostPerTurn: 5 * ms}}
)

// The table says how long a waiter sleeps after a step, and what ends its sleep.
func TestNapAfterStep(t *testing.T) {
	held := []queue.Entry{{ID: "h", Left: 2 * sec}, {ID: "i", Left: 20 * sec, HoldLeft: 1 * sec}}
	ahead := []queue.Entry{{ID: "a", Left: 3 * sec}, {ID: "b", Left: 4 * sec}}
	for _, c := range []struct {
		what   string
		store  queue.Abilities
		view   queue.View
		waiter queue.Waiter
		want   time.Duration
	}{
		{"one that can be woken asks three times in its TTL", database,
			queue.View{}, queue.Waiter{Place: 1, TTL: 12 * sec, IsWoken: true}, 4 * sec},
		{"or soon after an offer has lapsed that it was not told of", database,
			queue.View{}, queue.Waiter{Place: 1, TTL: 60 * sec, IsWoken: true}, queue.OfferLimit + 250*ms},
		{"the next one looks when a hold or a lease ends", database,
			queue.View{Holders: held}, queue.Waiter{Place: 1, TTL: 60 * sec, IsWoken: true}, 1*sec + ms},
		{"or the quarantine, if nothing else is in its way", database,
			queue.View{Holders: held, Quarantined: true, QuarantineLeft: 3 * sec},
			queue.Waiter{Place: 1, TTL: 60 * sec, IsWoken: true, Fits: true}, 3*sec + ms},
		{"one behind others looks when all of them are overdue", database,
			queue.View{Holders: held, Waiters: ahead}, queue.Waiter{Place: 3, TTL: 60 * sec, IsWoken: true}, 4*sec + ms},
		{"overdue ones do not delay it", database,
			queue.View{Holders: held, Waiters: []queue.Entry{{ID: "a"}}},
			queue.Waiter{Place: 2, TTL: 60 * sec, IsWoken: true}, 1*sec + ms},
		{"where nobody is woken each place costs the same", pooler,
			queue.View{}, queue.Waiter{Place: 3, Turns: 3, TTL: 60 * sec}, 600 * ms},
		{"behind those that are woken it looks by its place", database,
			queue.View{}, queue.Waiter{Place: 43, Turns: 43, TTL: 60 * sec}, 250 * ms},
		{"where waiters observe each other, too", shared,
			queue.View{}, queue.Waiter{Place: 30, Turns: 3, TTL: 60 * sec}, 600 * ms},
		{"at the front all within a second", shared,
			queue.View{}, queue.Waiter{Place: 32, Turns: 32, TTL: 60 * sec}, 1 * sec},
		{"far behind more rarely", shared,
			queue.View{}, queue.Waiter{Place: 320, Turns: 320, TTL: 60 * sec}, 10 * sec},
		{"and no later than its TTL allows", shared,
			queue.View{}, queue.Waiter{Place: 320, Turns: 320, TTL: 6 * sec}, 2 * sec},
	} {
		if got := c.store.AfterStep(&c.view, c.waiter).For; got != c.want {
			t.Errorf("%s: it sleeps for %v, want %v", c.what, got, c.want)
		}
	}
}

// A waiter that the step has found to be due asks at once, and keeps its connection for that.
func TestDueAsksAtOnce(t *testing.T) {
	nap := database.AfterStep(&queue.View{}, queue.Waiter{Place: 1, TTL: 60 * sec, IsDue: true})
	if nap != queue.Soon(60*sec) || nap.For > 10*ms || !nap.KeepsConnection {
		t.Errorf("it sleeps %+v", nap)
	}
}

// A waiter is overdue when it has missed its last moment to ask by a third of its TTL. That it looks
// sooner, because a wake-up may be lost, does not shorten that.
func TestOverdue(t *testing.T) {
	for place, want := range map[int]time.Duration{1: 40 * sec, 50: 20*sec + 390*ms} {
		w := queue.Waiter{Place: place, Turns: place, TTL: 60 * sec, IsWoken: place == 1}
		if got := database.AfterStep(&queue.View{}, w).Overdue; got != want {
			t.Errorf("in place %d it is overdue after %v, want %v", place, got, want)
		}
	}
	if got := database.AfterLook(60*sec, queue.Waiter{Place: 9, TTL: 60 * sec, IsWoken: true}).Overdue; got != 60*sec {
		t.Errorf("after a look at its place it is overdue after %v, want its TTL", got)
	}
}

// A waiter that observes others does not also look when a hold ends: all would come at once.
func TestObserversDoNotComeAtOnce(t *testing.T) {
	v := queue.View{Holders: []queue.Entry{{ID: "h", HoldLeft: 100 * ms}}}
	if got := shared.AfterStep(&v, queue.Waiter{Place: 30, Turns: 30, TTL: 60 * sec}).For; got != 1*sec {
		t.Errorf("it looks after %v", got)
	}
}

// Behind those that are woken a waiter looks as often as the queue moves, so that it is back before
// they have had their turn, and more rarely the longer nothing has moved.
func TestPace(t *testing.T) {
	start := time.Unix(0, 0)
	nap := func(pace queue.Pace) time.Duration {
		return database.AfterStep(&queue.View{}, queue.Waiter{Place: 52, Turns: 52, TTL: 600 * sec, Pace: pace}).For
	}
	unmoved := queue.Pace{}.At(52, start)
	quick := queue.Pace{}.At(60, start).At(52, start.Add(80*ms)) // 10 ms for each place
	if got, want := nap(quick), 175*ms; got != want {
		t.Errorf("35 places of 10 ms before its turn to be woken it sleeps %v, want %v", got, want)
	}
	if got, want := nap(unmoved), 430*ms; got != want {
		t.Errorf("with no known pace it sleeps %v, want %v", got, want)
	}
	if got, want := nap(unmoved.At(52, start.Add(40*sec))), 20*sec; got != want {
		t.Errorf("40 s after the last move it sleeps %v, want %v", got, want)
	}
}

// A waiter that has only looked at its place has a whole TTL. If the first waiters have died, those
// behind them do not all come at the same moment.
func TestNapAfterLook(t *testing.T) {
	waiter := queue.Waiter{Place: 10, Turns: 10, TTL: 9 * sec, IsWoken: true}
	if got := database.AfterLook(60*sec, waiter).For; got != 6*sec {
		t.Errorf("it sleeps for %v, want two thirds of its TTL", got)
	}
	if got := database.AfterLook(1*sec, waiter).For; got != 1*sec+10*ms {
		t.Errorf("it sleeps for %v, want 1 s and 1 ms for each place", got)
	}
}

// The table says which waiters keep a connection, and which ones look meanwhile whether the queue has
// moved.
func TestConnections(t *testing.T) {
	for _, c := range []struct {
		what        string
		store       queue.Abilities
		place       int
		isWoken     bool
		keeps, peek bool
	}{
		{"a waiter that can be woken keeps its connection", database, 1, true, true, false},
		{"the next ones keep theirs, and look", database, 33, false, true, true},
		{"behind the last connection they do neither", database, 101, false, false, false},
		{"where nobody is woken nobody looks", pooler, 50, false, true, false},
		{"files need no connection", shared, 50, false, false, true},
	} {
		nap := c.store.AfterStep(&queue.View{}, queue.Waiter{Place: c.place, Turns: c.place, TTL: 60 * sec, IsWoken: c.isWoken})
		if nap.KeepsConnection != c.keeps || nap.Peek.Moves > 0 != c.peek {
			t.Errorf("%s: %+v", c.what, nap)
		}
	}
	// In a queue that moves quickly the next ones keep theirs too: they are back soon.
	quick := queue.Pace{}.At(200, time.Unix(0, 0)).At(120, time.Unix(0, 1))
	if nap := database.AfterStep(&queue.View{}, queue.Waiter{Place: 120, Turns: 120, TTL: 60 * sec, Pace: quick}); !nap.KeepsConnection {
		t.Errorf("it gives up its connection for %v", nap.For)
	}
}

// A waiter of files looks soon after a move, then less and less often.
func TestPeek(t *testing.T) {
	peek := shared.AfterStep(&queue.View{}, queue.Waiter{Place: 4, Turns: 4, TTL: 60 * sec}).Peek
	for unmoved, want := range map[time.Duration]time.Duration{0: 8 * ms, 100 * ms: 25 * ms, 60 * sec: 100 * ms} {
		if got := peek.Pause(unmoved); got != want {
			t.Errorf("%v after the last move it looks in %v, want %v", unmoved, got, want)
		}
	}
	if peek.Moves != 2 {
		t.Errorf("it asks after %d moves, want half of its turns", peek.Moves)
	}
}
