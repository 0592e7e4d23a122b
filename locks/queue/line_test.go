package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/queue"
)

// line is a queue in memory, on which decisions are written as an engine does it.
type line struct {
	entries     map[string]queue.Entry
	counter     int64
	epoch       int
	quarantined bool
	front       int // the number of waiters that a view shows, or 0 if it shows all
	decide      func(queue.View, queue.Question) queue.Decision
}

func newLine() *line { return &line{entries: map[string]queue.Entry{}, decide: queue.Decide} }

func before(a, b queue.Entry) bool {
	return cmp.Or(cmp.Compare(b.Claim.Priority, a.Claim.Priority), cmp.Compare(a.Claim.Ticket, b.Claim.Ticket), strings.Compare(a.ID, b.ID)) < 0
}

func isPresent(e queue.Entry) bool { return !e.Absent }

// in gives the entries in some states, in the order of waiters.
func (l *line) in(states string) (all []queue.Entry) {
	for _, e := range l.entries {
		if strings.ContainsRune(states, rune(e.State)) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b queue.Entry) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	return all
}

func (l *line) view(q queue.Question, front int) queue.View {
	waiters := l.in("W")
	v := queue.View{
		Counter: l.counter, Epoch: strconv.Itoa(l.epoch), Quarantined: l.quarantined,
		Holders: l.in("OHE"), Waiters: waiters, Total: len(waiters),
	}
	caller := q.Entry
	if known, ok := l.entries[caller.ID]; ok {
		v.Caller = &known
		caller.Claim.Ticket = cmp.Or(known.Claim.Ticket, caller.Claim.Ticket)
	}
	caller.Claim.Ticket = cmp.Or(caller.Claim.Ticket, l.counter+1)
	for front < len(waiters) && !slices.ContainsFunc(waiters[:front], isPresent) {
		front++
	}
	v.More = l.front > 0 && front < len(waiters)
	if v.More {
		v.Waiters = waiters[:front]
	}
	isShown := slices.ContainsFunc(v.Waiters, func(e queue.Entry) bool { return e.ID == caller.ID })
	for _, w := range waiters {
		if v.More && !isShown && before(w, caller) {
			v.Ahead++
		}
		if w.Replace != locks.ReplaceNone {
			v.Replaceable = append(v.Replaceable, w)
		}
	}
	return v
}

// ask makes a step, and then looks at longer and longer views until nothing is left to be given.
func (l *line) ask(q queue.Question) queue.Decision {
	d := l.apply(q, l.front)
	shown := l.front
	again := d.Again
	for again {
		shown *= 2
		next := l.apply(queue.Question{Step: queue.Look}, shown)
		d.Told = append(d.Told, next.Told...)
		d.Due = next.Due
		again = next.Again
	}
	return d
}

// apply decides with a view of the first waiters, and writes the decision.
func (l *line) apply(q queue.Question, front int) queue.Decision {
	d := l.decide(l.view(q, front), q)
	l.counter = d.Counter
	for _, e := range d.Put {
		l.entries[e.ID] = e
	}
	return d
}

// script is a line with its clients. It does what a text says.
type script struct {
	line
	saved   *line
	clients map[string]*client
}

// client is what the owner of an entry knows.
type client struct {
	first, now queue.Question // what it asked first, and what it would ask now
	waits      bool
	holds      bool // its command runs
	isKnown    bool // the store has answered it since it last lost its data
}

func newScript() *script { return &script{line: *newLine(), clients: map[string]*client{}} }

func (s *script) snapshot() *line {
	l := s.line
	l.entries = maps.Clone(l.entries)
	return &l
}

// do makes one step, as "a join max=2", or changes the queue without a step: "a absent", "crash".
func (s *script) do(text string) string {
	words := strings.Fields(text)
	switch words[0] {
	case "quarantine":
		s.quarantined = true
	case "over": // the quarantine ends, and with it each lease that was not renewed
		s.quarantined = false
		for _, c := range s.clients {
			c.holds = c.holds && c.isKnown
		}
	case "front":
		s.front, _ = strconv.Atoi(words[1])
	case "save":
		s.saved = s.snapshot()
	case "crash": // the store loses what came after the last save
		old := s.saved
		if old == nil {
			old = newLine()
		}
		s.entries, s.counter = maps.Clone(old.entries), old.counter
		s.epoch++
		s.quarantined = true
		for _, c := range s.clients {
			c.isKnown = false
		}
	case "look":
		return s.answer(s.ask(queue.Question{Step: queue.Look}))
	default:
		return s.doEntry(words[0], words[1], words[2:])
	}
	return ""
}

// doEntry makes a step of an entry, or changes the entry without a step.
func (s *script) doEntry(id, verb string, words []string) string {
	c, e := s.clients[id], s.entries[id]
	if c == nil {
		c = &client{first: question(id, words)}
		c.now = c.first
		s.clients[id] = c
	}
	switch verb {
	case "absent":
		e.Absent = true
	case "deaf":
		e.Reachable = false
	case "accept": // without a question
		e.State = queue.Holding
		c.learn(e, s.epoch)
	case "holdends":
		e.HoldLeft = 0
		if e.State == queue.Ended {
			delete(s.entries, id)
			return ""
		}
	case "expires":
		c.holds = false
		if e.State != queue.Holding || e.HoldLeft == 0 {
			delete(s.entries, id)
			return ""
		}
		e.State = queue.Ended
	default:
		return s.askFor(c, queue.Step(verb), words)
	}
	s.entries[id] = e
	return ""
}

// askFor makes a step of a client. The verb "late" repeats the client's first join; the word "lost"
// loses the answer.
func (s *script) askFor(c *client, verb queue.Step, words []string) string {
	q := c.now
	isLate := verb == "late"
	if isLate {
		q, verb = c.first, queue.Join
	}
	q.Step, q.By = verb, "somebody"
	c.holds = c.holds && verb != queue.Release // its command has ended
	d := s.ask(q)
	if isLate || slices.Contains(words, "lost") {
		return s.answer(d)
	}
	switch d.Verdict {
	case queue.Granted, queue.Queued, queue.Held:
		c.learn(d.Entry, s.epoch)
	case queue.Released, queue.Lost:
		if verb != queue.Evict {
			c.holds, c.waits = false, false
		}
	case queue.Busy, queue.Nested, queue.Gone:
		c.waits = false
	}
	return s.answer(d)
}

func (c *client) learn(e queue.Entry, epoch int) {
	c.waits = e.State == queue.Waiting
	c.holds = !c.waits
	c.isKnown = true
	c.now.Entry, c.now.Epoch = e, strconv.Itoa(epoch)
}

// question makes the question of a client from words such as "max=2 hold nowait".
func question(id string, words []string) queue.Question {
	q := queue.Question{Entry: queue.Entry{ID: id, Claim: locks.Claim{Weight: 1, Max: 1}, Reachable: true}}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "max":
			q.Entry.Claim.Max = n
		case "shared":
			q.Entry.Claim.Max = 0
		case "weight":
			q.Entry.Claim.Weight = n
		case "priority":
			q.Entry.Claim.Priority = n
		case "replace":
			q.Entry.Replace = locks.Replacement(value)
		case "hold":
			q.Entry.HoldLeft = time.Hour
		case "deaf":
			q.Entry.Reachable = false
		case "nowait":
			q.NoWait = true
		case "queue":
			q.MaxQueue = &n
		case "in":
			q.Within = strings.Split(value, ",")
		case "lost":
		default:
			panic(w)
		}
	}
	return q
}

// answer writes a decision as a text: "granted 0,1", and which other entries it concerns.
func (s *script) answer(d queue.Decision) string {
	text := string(d.Verdict)
	add := func(format string, args ...any) { text += fmt.Sprintf(format, args...) }
	switch d.Verdict {
	case queue.Granted, queue.Held:
		add(" %s", locks.FormatSlots(d.Entry.Slots))
	case queue.Queued:
		add(" %d", d.Place)
	case queue.Busy, queue.Nested:
		if d.Full {
			add(" full")
		}
		if d.Inside != "" {
			add(" in %s", d.Inside)
		}
		add(" %d+%d", len(d.Holders), d.Waiters)
		if d.Fits && s.quarantined {
			add(" fits")
		}
	case queue.Released:
		if !d.Existed {
			add(" nothing")
		}
	}
	for _, e := range d.Replaced {
		add(", replaces %s", e.ID)
	}
	for _, id := range d.Told {
		if e := s.entries[id]; e.State == queue.Offered && e.Evicted == "" {
			add(", offers %s %s", id, locks.FormatSlots(e.Slots))
		} else {
			add(", ends %s", id)
		}
	}
	if d.Due != "" {
		add(", due %s", d.Due)
	}
	return strings.TrimPrefix(text, ", ")
}
