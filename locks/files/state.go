package files

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// state is one version of a name's queue. Its text is a line for the name, and one for
// each entry.
type state struct {
	nonce   uint64 // no two versions are the same
	counter int64  // the highest ticket or fence so far
	entries []member
}

// member is an entry as a state has it. What no decision needs is in its record.
type member struct {
	id       string      // the Ref's, in hexadecimal
	life     int64       // which record of it counts
	state    queue.State // Gone: evicted, and does not know yet. Never Offered
	ticket   int64
	weight   int
	max      int
	priority int
	replace  locks.Replacement
	evicted  string
	slots    string
	fence    int64
	ttl      time.Duration

	hold    time.Duration // the slots stay taken for so long from the grant on
	granted locks.Instant // on the owner's clock; 0: not known yet
	rest    time.Duration // Ended: what was left of the hold when the holder left
}

// hasSlots reports whether its slots are taken.
func (m *member) hasSlots() bool { return m.state == queue.Holding || m.state == queue.Ended }

func (s *state) text() []byte {
	text := fmt.Appendf(nil, "%x %d %d\n", s.nonce, s.counter, len(s.entries))
	for i := range s.entries {
		m := &s.entries[i]
		text = append(append(text, m.id...), ' ', byte(m.state))
		for _, n := range []int64{
			m.life, m.ticket, int64(m.weight), int64(m.max), int64(m.priority), m.fence,
			int64(m.ttl), int64(m.hold), int64(m.granted), int64(m.rest),
		} {
			text = strconv.AppendInt(append(text, ' '), n, 10)
		}
		text = append(append(text, " s"...), m.slots...)
		text = append(append(text, " r"...), m.replace...)
		text = append(strconv.AppendQuote(append(text, ' '), m.evicted), '\n')
	}
	return text
}

var errDamaged = errors.New("is not what golock has written")

// words reads a line word by word. It remembers the last error.
type words struct {
	rest string
	err  error
}

func (w *words) next() (word string) {
	word, w.rest, _ = strings.Cut(w.rest, " ")
	return word
}

func (w *words) after(prefix string) string {
	text, ok := strings.CutPrefix(w.next(), prefix)
	if !ok {
		w.err = errDamaged
	}
	return text
}

func (w *words) number(least, most int64) int64 {
	n, err := strconv.ParseInt(w.next(), 10, 64)
	if err != nil || n < least || n > most {
		w.err = errDamaged
	}
	return n
}

func parseState(text []byte) (*state, error) {
	lines := strings.Split(string(text), "\n")
	w := words{rest: lines[0]}
	nonce, err := strconv.ParseUint(w.next(), 16, 64)
	s := &state{nonce: nonce, counter: w.number(0, math.MaxInt64)}
	count := w.number(0, math.MaxInt64)
	if w.err != nil || err != nil || int64(len(lines)) != count+2 || lines[count+1] != "" {
		return nil, errDamaged
	}
	s.entries = make([]member, len(lines)-2)
	for i := range s.entries {
		if s.entries[i], err = parseMember(lines[i+1]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return s, nil
}

func parseMember(line string) (m member, err error) {
	const most = math.MaxInt64
	w := words{rest: line}
	id, state := w.next(), w.next()
	if len(state) != 1 || !strings.Contains("WHEG", state) || !isID(id) {
		return m, errDamaged
	}
	m = member{
		id: id, state: queue.State(state[0]), life: w.number(0, most), ticket: w.number(0, most),
		weight: int(w.number(1, lease.MaxUnits)), max: int(w.number(0, math.MaxInt32)),
		priority: int(w.number(math.MinInt32, math.MaxInt32)), fence: w.number(0, most),
		ttl: time.Duration(w.number(1, most)), hold: time.Duration(w.number(0, most)),
		granted: locks.Instant(w.number(math.MinInt64, most)), rest: time.Duration(w.number(0, most)),
		slots: w.after("s"), replace: locks.Replacement(w.after("r")),
	}
	switch m.replace {
	case locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning:
	default:
		return m, errDamaged
	}
	if _, err = locks.ParseSlots(m.slots, lease.MaxUnits); err == nil {
		m.evicted, err = strconv.Unquote(w.rest)
	}
	return m, cmp.Or(w.err, err)
}

// find gives the entry of an ID, or nil.
func (s *state) find(id string) *member {
	for i := range s.entries {
		if s.entries[i].id == id {
			return &s.entries[i]
		}
	}
	return nil
}

// has reports whether a record belongs to an entry.
func (s *state) has(record string) bool {
	return slices.ContainsFunc(s.entries, func(m member) bool { return m.record() == record })
}

// record is the name of the entry's file. An entry that rejoins after it was taken for dead
// has another file, which nobody can be removing.
func (m *member) record() string { return m.id + "-" + strconv.FormatInt(m.life, 10) }

// entry converts the member for a decision.
func (m *member) entry() queue.Entry {
	slots, _ := locks.ParseSlots(m.slots, lease.MaxUnits) // they were parsed before
	return queue.Entry{
		ID: m.id, State: m.state, Replace: m.replace, Evicted: m.evicted, Slots: slots, Fence: m.fence, Reachable: true,
		Claim: locks.Claim{Weight: m.weight, Max: m.max, Priority: m.priority, Ticket: m.ticket},
	}
}

// inOrder compares waiters by their places.
func inOrder(a, b *member) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.ticket, b.ticket), cmp.Compare(a.id, b.id))
}
