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
	entries map[string]queue.Entry
	counter int64
	epoch   int
	quiet   bool // a quarantine
	front   int  // how many waiters a view shows; 0: all
	look    func(queue.View, queue.Question) queue.Decision
}

func newLine() *line { return &line{entries: map[string]queue.Entry{}, look: queue.Decide} }

func before(a, b queue.Entry) bool {
	return cmp.Or(cmp.Compare(b.Claim.Priority, a.Claim.Priority), cmp.Compare(a.Claim.Ticket, b.Claim.Ticket), strings.Compare(a.ID, b.ID)) < 0
}

func there(e queue.Entry) bool { return !e.Absent }

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
	v := queue.View{Counter: l.counter, Epoch: strconv.Itoa(l.epoch), Quarantined: l.quiet, Holders: l.in("OHE"), Waiters: waiters, Total: len(waiters)}
	mine := q.Entry
	if own, ok := l.entries[mine.ID]; ok {
		v.Own = &own
		mine.Claim.Ticket = cmp.Or(own.Claim.Ticket, mine.Claim.Ticket)
	}
	mine.Claim.Ticket = cmp.Or(mine.Claim.Ticket, l.counter+1)
	for front < len(waiters) && !slices.ContainsFunc(waiters[:front], there) {
		front++
	}
	if v.More = l.front > 0 && front < len(waiters); v.More {
		v.Waiters = waiters[:front]
	}
	for _, w := range waiters {
		if v.More && !slices.ContainsFunc(v.Waiters, func(e queue.Entry) bool { return e.ID == mine.ID }) && before(w, mine) {
			v.Ahead++
		}
		if w.Replace != locks.ReplaceNone {
			v.Replaceable = append(v.Replaceable, w)
		}
	}
	return v
}

// ask writes what is decided, until nothing is left to be given.
func (l *line) ask(q queue.Question) queue.Decision {
	d := l.once(q, l.front)
	for n, more := l.front, d.Again; more; {
		n *= 2
		next := l.once(queue.Question{Step: queue.Look}, n)
		d.Told, d.Due, more = append(d.Told, next.Told...), next.Due, next.Again
	}
	return d
}

func (l *line) once(q queue.Question, front int) queue.Decision {
	d := l.look(l.view(q, front), q)
	l.counter = d.Counter
	for _, e := range d.Put {
		l.entries[e.ID] = e
	}
	return d
}

// script is a line with those who use it: it does what a text says.
type script struct {
	line
	saved   *line
	clients map[string]*client
}

// client is what the owner of an entry knows.
type client struct {
	first, now queue.Question
	waits      bool
	holds      bool // its command runs
	sure       bool // and the store knew it since it last lost its data
}

func newScript() *script { return &script{line: *newLine(), clients: map[string]*client{}} }

func (s *script) snapshot() *line {
	l := s.line
	l.entries = maps.Clone(l.entries)
	return &l
}

// do makes one step, "a join max=2", or changes what is: "a absent", "crash".
func (s *script) do(text string) string {
	words := strings.Fields(text)
	switch words[0] {
	case "quarantine":
		s.quiet = true
	case "over": // the quarantine; leases that were not renewed too
		s.quiet = false
		for _, c := range s.clients {
			c.holds = c.holds && c.sure
		}
	case "front":
		s.front, _ = strconv.Atoi(words[1])
	case "save":
		s.saved = s.snapshot()
	case "crash": // what came after the last save is lost
		old := s.saved
		if old == nil {
			old = newLine()
		}
		s.entries, s.counter = maps.Clone(old.entries), old.counter
		s.epoch++
		s.quiet = true
		for _, c := range s.clients {
			c.sure = false
		}
	case "look":
		return s.answer(s.ask(queue.Question{Step: queue.Look}))
	default:
		return s.turn(words[0], words[1], words[2:])
	}
	return ""
}

func (s *script) turn(id, verb string, words []string) string {
	c, e := s.clients[id], s.entries[id]
	if c == nil {
		c = &client{first: question(id, words)}
		c.now, s.clients[id] = c.first, c
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
		if e.HoldLeft = 0; e.State == queue.Ended {
			delete(s.entries, id)
			return ""
		}
	case "expires":
		if c.holds = false; e.State == queue.Holding && e.HoldLeft > 0 {
			e.State = queue.Ended
			break
		}
		delete(s.entries, id)
		return ""
	default:
		return s.step(c, queue.Step(verb), words)
	}
	s.entries[id] = e
	return ""
}

// step asks. "late" has an old join come once more, "lost" loses the answer.
func (s *script) step(c *client, verb queue.Step, words []string) string {
	q := c.now
	late := verb == "late"
	if late {
		q, verb = c.first, queue.Join
	}
	q.Step, q.By = verb, "somebody"
	c.holds = c.holds && verb != queue.Release // its command has ended
	d := s.ask(q)
	if late || slices.Contains(words, "lost") {
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
	c.waits, c.holds, c.sure = e.State == queue.Waiting, e.State != queue.Waiting, true
	c.now.Entry, c.now.Epoch = e, strconv.Itoa(epoch)
}

// question is what a client wants: "max=2 hold nowait".
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

// answer tells a decision: "granted 0,1", and to whom else something is said.
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
		if d.Fits && s.quiet {
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
