package queue

import "time"

// Constants about places in a queue.
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

	// OutagePlaces are the first places, whose waiters go on asking at short intervals while the store
	// is out of reach: they must be back before others take them for dead. Waiters that are further
	// back slow down, so that they do not all come at once when the store is back.
	OutagePlaces = 16
)

// These places and times belong to the script of Redis, which sends a grant to a waiter over its
// subscription. The script has the same numbers: TestScriptConstants in locks/redis compares them.
const (
	// CheckingPlace is the place of the waiter that checks on the first one: each of its questions makes
	// the script wake the first waiter again.
	CheckingPlace = 2

	// UnreachableLimit is the time in which the first waiter must ask if its subscription is missing;
	// otherwise it counts as dead. A waiter that only connects anew needs a few milliseconds.
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

// OfferLimit is the longest time that an offer stands.
const OfferLimit = 5 * time.Second

// AskEvery is the longest time between two questions of a waiter with that TTL: two of them may
// fail before its place is lost.
func AskEvery(ttl time.Duration) time.Duration { return ttl / 3 }

// Abilities are what a store can do for waiters, and what waiters may cost the store.
type Abilities struct {
	Wakes       int     // the number of first waiters that can be woken; the others look again and again
	Connections int     // the number of first waiters that may keep a connection although nobody wakes them
	Peeks       Spacing // how often a waiter that nobody wakes looks whether the queue has moved

	// Observes says that a dead entry is found only by the steps of waiters, as in a directory of
	// files. So waiters make steps often there.
	Observes bool
}

// Spacing is the pause between two looks of a waiter. It is at least Least, plus LeastPerTurn for each
// turn that comes before the waiter's. If Most is not 0, the pause grows as long as the queue does not move:
// up to Most, or up to MostPerTurn for each turn if that is longer.
type Spacing struct {
	Least, LeastPerTurn time.Duration
	Most, MostPerTurn   time.Duration
}

// slowestPeek is the longest pause between two looks of any waiter.
const slowestPeek = time.Second

// Waiter is the waiter that a schedule is for.
type Waiter struct {
	Place   int // its place in the queue; 1 is the next
	Turns   int // the number of hand-offs until it holds, as far as that is known; at least 1
	TTL     time.Duration
	IsWoken bool // each entry before it can wake it
	Fits    bool // only the quarantine or waiters before it are in its way
	IsDue   bool // it could have a slot at once (Decision.Due)
	Pace    Pace
}

// Nap is how a waiter passes the time until it asks again.
type Nap struct {
	For             time.Duration // the time after which it asks in any case
	Overdue         time.Duration // the time without a question after which others may take it for dead
	KeepsConnection bool
	Peek            Peek // how it looks meanwhile whether the queue has moved; zero if it does not look
}

// Peek is how a waiter looks whether the queue has moved.
type Peek struct {
	Least, Most time.Duration // the shortest and the longest pause between two looks
	Moves       int           // the number of moves of the queue after which it asks; 0 if it does not look
}

// Pause is the pause before the next look at a queue that has not moved for some time. So a waiter
// behind short commands, which follow each other quickly, looks often, and behind a long one rarely.
func (p Peek) Pause(unmoved time.Duration) time.Duration {
	return min(max(unmoved/4, p.Least), p.Most)
}

// soon is how long a waiter sleeps that should ask again at once: the waiters before it have just been
// served, or have been found dead, and more of them may be dead.
const soon = time.Millisecond

// Soon is the nap of a waiter that asks again at once, after a step that changed more than its
// answer tells.
func Soon(ttl time.Duration) Nap {
	return Nap{For: soon, Overdue: soon + AskEvery(ttl), KeepsConnection: true}
}

// AfterStep is the nap of a waiter after a step that has left it in the queue. v is the view of the step.
func (a Abilities) AfterStep(v *View, w Waiter) Nap {
	if w.IsDue {
		return Soon(w.TTL)
	}
	limit := AskEvery(w.TTL)
	for _, event := range a.nextEvents(v, w) {
		if event > 0 {
			limit = soonerThan(limit, event, time.Millisecond)
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
// overdue is the time until all waiters in the StepPlaces are overdue.
func (a Abilities) AfterLook(overdue time.Duration, w Waiter) Nap {
	limit := w.TTL - AskEvery(w.TTL)
	if !w.IsWoken {
		limit = a.pause(w)
	}
	// The time grows with the place: if the first waiters have died, the others do not come all at once.
	limit = soonerThan(limit, overdue, time.Duration(w.Place)*time.Millisecond)
	n := a.nap(w, limit)
	n.Overdue = w.TTL
	return n
}

// soonerThan returns limit, or the time until margin after an event if that is shorter.
func soonerThan(limit, event, margin time.Duration) time.Duration {
	return min(limit, min(limit, event)+margin) // the inner min keeps the sum from overflowing
}

// nextEvents returns the times until something can change for a waiter without a wake-up. The caller
// ignores times that are not positive. A waiter that observes others looks often enough without these times.
func (a Abilities) nextEvents(v *View, w Waiter) (events []time.Duration) {
	if a.Observes {
		return nil
	}
	var overdue time.Duration
	for i := range v.Waiters[:min(w.Place-1, len(v.Waiters))] {
		overdue = max(overdue, v.Waiters[i].Left)
	}
	switch {
	case overdue > 0: // all waiters before it may have died: then it is the first
		return append(events, overdue)
	case w.Fits:
		return append(events, v.QuarantineLeft)
	}
	for i := range v.Holders {
		events = append(events, v.Holders[i].Left, v.Holders[i].HoldLeft)
	}
	return events
}

// A waiter that can be woken sleeps no longer than an offer stands, plus wakeMargin for each place: a
// wake-up may be lost, or a waiter before it may let its offer expire. The margin keeps waiters from
// looking all at once.
const wakeMargin = 250 * time.Millisecond

// The pauses between two steps of a waiter that nobody wakes.
const (
	turnPause    = 200 * time.Millisecond // the pause for each turn, where nobody is woken
	behindFirst  = 50 * time.Millisecond  // the pause just behind the waiters that can be woken
	behindPause  = 20 * time.Millisecond  // the additional pause for each further place
	observePause = time.Second            // the longest pause of a waiter that observes others
	observeFront = 32                     // the number of turns from which the longest pause grows
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
	// If the queue goes on at its pace, the waiter is back before the waiters that can be woken have
	// had their turn. While nothing moves it sleeps half as long as it has waited for a move.
	pause := behindFirst + behind*behindPause
	if p := w.Pace; p.places > 0 {
		left := p.duration * (behind + time.Duration(a.Wakes/2)) / time.Duration(p.places)
		pause = min(pause, max(left/2, behindFirst))
	}
	return min(limit, max(pause, w.Pace.unmoved()/2))
}

// keepFor is the longest sleep over which a waiter just behind the Connections keeps its connection: in
// a queue that moves quickly, connecting costs more than looking.
const keepFor = 250 * time.Millisecond

// nap completes the schedule of a waiter that sleeps until limit.
func (a Abilities) nap(w Waiter, limit time.Duration) Nap {
	if w.IsWoken {
		return Nap{For: min(limit, OfferLimit+time.Duration(w.Place)*wakeMargin), KeepsConnection: true}
	}
	mayKeep := w.Place <= a.Connections
	keepsForNap := limit <= keepFor && w.Place <= 2*a.Connections+StepPlaces
	n := Nap{For: limit, KeepsConnection: mayKeep || keepsForNap}
	isBehindWoken := a.Wakes > 0 && w.Place > a.Wakes
	if a.Observes || mayKeep && isBehindWoken {
		n.Peek = a.Peeks.peek(w.Turns - a.Wakes)
		n.Peek.Moves = max(w.Turns/2, 1)
	}
	return n
}

// peek returns the pauses of a waiter that has a number of turns before its own.
func (s Spacing) peek(turns int) Peek {
	n := time.Duration(turns)
	least := s.Least + n*s.LeastPerTurn
	most := least
	if s.Most > 0 {
		most = min(max(s.Most, n*s.MostPerTurn), slowestPeek)
	}
	return Peek{Least: least, Most: most}
}

// Pace is how a waiter has advanced in the queue.
type Pace struct {
	place    int           // 0 before the first look
	lastLook time.Time     // when it last found itself at the place
	lastMove time.Time     // when it first found itself at the place
	places   int           // the number of places that it advanced in its last move
	duration time.Duration // how long that move took
}

// At is the pace of a waiter that finds itself at a place.
func (p Pace) At(place int, now time.Time) Pace {
	next := Pace{place: place, lastLook: now, lastMove: p.lastMove, duration: p.duration}
	if place != p.place {
		next.places = p.place - place
		next.duration = now.Sub(p.lastLook)
		next.lastMove = now
	}
	return next
}

// unmoved is the time for which the waiter has not advanced.
func (p Pace) unmoved() time.Duration { return p.lastLook.Sub(p.lastMove) }
