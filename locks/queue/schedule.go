package queue

import "time"

// Constants about places in a queue. Each answers another question.
const (
	// ShownPlaces is how many of the first waiters a View shows where reading all of a long queue
	// would hold up those at its front. If what is free may be enough for more, the decision asks for
	// a longer view (Decision.Again).
	ShownPlaces = 20

	// StepPlaces are the first places, whose waiters make a whole step each time they look: a step
	// passes over the dead and hands out what is free. A waiter that is further back only prolongs
	// its place, which locks nothing that the front needs.
	StepPlaces = 3

	// ObservedPlaces is how many waiters a step observes where the store cannot tell who is dead: this
	// number at the front, and the same number just before the waiter that makes the step. Each one
	// costs the reading of a file.
	ObservedPlaces = 4

	// OutagePlaces are the first places, whose waiters ask at the first pace as long as the store is
	// out of reach: they must be back before others take them for dead. Those that are further back
	// slow down, so that they do not all come at once when the store is back.
	OutagePlaces = 16
)

// These places and times belong to the script of Redis, which grants to a waiter over its
// subscription. The script has the same numbers: TestScriptConstants in locks/redis compares them.
const (
	// CheckingPlace is the place of the waiter that checks on the first one: each of its questions makes
	// the script wake the first waiter again.
	CheckingPlace = 2

	// UnreachableLimit is the time in which the first waiter must ask if its subscription is missing.
	// Then it counts as dead. A waiter that only connects anew needs a few milliseconds.
	UnreachableLimit = 500 * time.Millisecond

	// CheckAfter is how long after the first waiter was woken the second one asks. The first may have
	// died since, and a server finds out that a connection is gone only after a moment.
	CheckAfter = 450 * time.Millisecond

	// NewcomerLimit replaces UnreachableLimit for a waiter that has never subscribed: on a busy machine
	// it may still be connecting.
	NewcomerLimit = 3 * time.Second

	// NewcomerAskEvery is the longest time between two questions of a waiter that has not subscribed, as
	// nobody can wake it.
	NewcomerAskEvery = time.Second
)

// OfferLimit is how long an offer stands at most.
const OfferLimit = 5 * time.Second

// AskEvery is the longest time between two questions of a waiter with that TTL: two of them may
// fail before its place is lost.
func AskEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// Abilities are what a store can do for those who wait, and what they may cost it.
type Abilities struct {
	Wakes       int     // the number of first waiters that can be woken; the others look again and again
	Connections int     // the number of first waiters that may keep a connection although nobody wakes them
	Peeks       Spacing // the looks of those that nobody wakes whether the queue has moved

	// Observes says that only steps of waiters find out who is dead. They are frequent there.
	Observes bool
}

// Spacing is the pause between two looks of a waiter. It is at least Least, plus LeastPerTurn for each
// turn before the waiter's own. If Most is not 0, the pause grows as long as the queue does not move: up
// to Most, or up to MostPerTurn for each turn if that is longer.
type Spacing struct {
	Least, LeastPerTurn time.Duration
	Most, MostPerTurn   time.Duration
}

// slowestPeek is the longest pause between two looks of anybody.
const slowestPeek = time.Second

// Waiter is whom a schedule is for.
type Waiter struct {
	Place   int // 1 is the next
	Turns   int // the number of hand-offs until it holds, as far as is known; at least 1
	TTL     time.Duration
	IsWoken bool // all who are before it can wake it
	Fits    bool // only the quarantine or waiters before it are in its way
	IsDue   bool // it could have a slot at once (Decision.Due)
	Pace    Pace
}

// Nap is how a waiter passes the time until it asks again.
type Nap struct {
	For             time.Duration // then it asks in any case
	Overdue         time.Duration // after so long without a question others may take it for dead
	KeepsConnection bool
	Peek            Peek // how it looks meanwhile whether the queue has moved; the zero one: it does not
}

// Peek is how a waiter looks whether the queue has moved.
type Peek struct {
	Least, Most time.Duration // the pause between two looks
	Moves       int           // the number of moves of the queue after which it asks; 0 if it does not peek
}

// Pause is the pause before the next look at a queue that has not moved for so long: short commands
// follow each other quickly, and a long one costs few looks.
func (p Peek) Pause(still time.Duration) time.Duration { return min(max(still/4, p.Least), p.Most) }

// soon is the nap of a waiter that should ask again at once: those before it have just been served,
// or have been found dead, and those behind them may be dead too.
const soon = time.Millisecond

// Soon is the nap of a waiter that asks again at once, after a step that changed more than its
// answer tells.
func Soon(ttl time.Duration) Nap {
	return Nap{For: soon, Overdue: soon + AskEvery(ttl), KeepsConnection: true}
}

// AfterStep is the nap of a waiter after a step that has left it in the queue. The view is that of
// the step.
func (a Abilities) AfterStep(v *View, w Waiter) Nap {
	if w.IsDue {
		return Soon(w.TTL)
	}
	limit := AskEvery(w.TTL)
	for _, event := range a.nextEvents(v, w) {
		if event > 0 {
			limit = min(limit, min(limit, event)+time.Millisecond)
		}
	}
	if !w.IsWoken {
		limit = min(limit, a.pause(w))
	}
	n := a.nap(w, limit)
	n.Overdue = limit + AskEvery(w.TTL)
	return n
}

// AfterLook is the nap of a waiter that has prolonged its place, for a whole TTL, without a step.
// overdue is how long it takes until all waiters in the StepPlaces are overdue.
func (a Abilities) AfterLook(overdue time.Duration, w Waiter) Nap {
	limit := w.TTL - AskEvery(w.TTL)
	if !w.IsWoken {
		limit = a.pause(w)
	}
	// If those in front have died, not all the others come at once.
	limit = min(limit, min(limit, overdue)+time.Duration(w.Place)*time.Millisecond)
	n := a.nap(w, limit)
	n.Overdue = w.TTL
	return n
}

// nextEvents returns the times until something can change for a waiter without a wake-up. The caller
// ignores those that are not positive. A waiter that observes others looks often enough without them.
func (a Abilities) nextEvents(v *View, w Waiter) (events []time.Duration) {
	if a.Observes {
		return nil
	}
	var overdue time.Duration
	for i := range v.Waiters[:min(w.Place-1, len(v.Waiters))] {
		overdue = max(overdue, v.Waiters[i].Left)
	}
	switch {
	case overdue > 0: // then it is the first: all before it may have died
		return append(events, overdue)
	case w.Fits:
		return append(events, v.QuarantineLeft)
	}
	for i := range v.Holders {
		events = append(events, v.Holders[i].Left, v.Holders[i].HoldLeft)
	}
	return events
}

// wakeMargin is how much longer than an offer stands a waiter sleeps that can be woken, for each
// place: a wake-up may be lost, or a waiter before it may let its offer pass. Then they do not all
// look at once.
const wakeMargin = 250 * time.Millisecond

// The pauses between two steps of a waiter that nobody wakes.
const (
	turnPause    = 200 * time.Millisecond // for each turn, where nobody is woken
	behindFirst  = 50 * time.Millisecond  // just behind those who are woken
	behindPause  = 20 * time.Millisecond  // longer by this for each place
	observePause = time.Second            // the longest pause of a waiter that observes others
	observeFront = 32                     // behind this number of turns, that pause grows
)

// pause is how long a waiter sleeps that nobody wakes.
func (a Abilities) pause(w Waiter) time.Duration {
	limit := AskEvery(w.TTL)
	turns := time.Duration(w.Turns)
	behind := time.Duration(w.Place - 1 - a.Wakes)
	switch {
	case a.Observes:
		return min(limit, turns*turnPause, max(observePause, turns*observePause/observeFront))
	case a.Wakes == 0 || behind < 0:
		return min(limit, turns*turnPause)
	}
	// If the queue goes on at its pace, the waiter is back before those who can be woken have had
	// their turn. While nothing moves it sleeps half as long as it has waited for a move.
	pause := behindFirst + behind*behindPause
	if p := w.Pace; p.places > 0 {
		left := p.in * (behind + time.Duration(a.Wakes/2)) / time.Duration(p.places)
		pause = min(pause, max(left/2, behindFirst))
	}
	return min(limit, max(pause, w.Pace.still()/2))
}

// keepFor is the longest sleep for which a waiter beyond those that may always keep their connection,
// but not far beyond, keeps it: in a queue that moves quickly, connecting costs more than looking.
const keepFor = 250 * time.Millisecond

// nap completes the schedule of a waiter that sleeps for so long.
func (a Abilities) nap(w Waiter, limit time.Duration) Nap {
	if w.IsWoken {
		return Nap{For: min(limit, OfferLimit+time.Duration(w.Place)*wakeMargin), KeepsConnection: true}
	}
	mayKeep := w.Place <= a.Connections
	n := Nap{For: limit, KeepsConnection: mayKeep || limit <= keepFor && w.Place <= 2*a.Connections+StepPlaces}
	if a.Observes || mayKeep && a.Wakes > 0 && w.Place > a.Wakes {
		n.Peek = a.Peeks.peek(w.Turns - a.Wakes)
		n.Peek.Moves = max(w.Turns/2, 1)
	}
	return n
}

// peek returns the pauses of a waiter that has a number of turns before its own.
func (s Spacing) peek(turns int) Peek {
	n := time.Duration(turns)
	p := Peek{Least: s.Least + n*s.LeastPerTurn}
	if p.Most = p.Least; s.Most > 0 {
		p.Most = min(max(s.Most, n*s.MostPerTurn), slowestPeek)
	}
	return p
}

// Pace is how a waiter has advanced in the queue.
type Pace struct {
	place  int           // 0 before the first look
	seen   time.Time     // when it last found itself at the place
	moved  time.Time     // when it first found itself at the place
	places int           // how many places it advanced in its last move
	in     time.Duration // how long that move took
}

// At is the pace of a waiter that finds itself at a place.
func (p Pace) At(place int, now time.Time) Pace {
	next := Pace{place: place, seen: now, moved: p.moved, in: p.in}
	if place != p.place {
		next.places, next.in, next.moved = p.place-place, now.Sub(p.seen), now
	}
	return next
}

// still is for how long it has not advanced.
func (p Pace) still() time.Duration { return p.seen.Sub(p.moved) }
