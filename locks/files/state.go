package files

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
	queue.Entry       // Gone: evicted, and does not know yet. Never Offered
	life        int64 // which record of it counts
	ttl         time.Duration

	hold    time.Duration // the slots stay taken for so long from the grant on
	granted locks.Instant // on the owner's clock; 0: not known yet
	rest    time.Duration // Ended: what was left of the hold when the holder left
}

// hasSlots reports whether its slots are taken.
func (m *member) hasSlots() bool { return m.State == queue.Holding || m.State == queue.Ended }

func (s *state) text() []byte {
	text := fmt.Appendf(nil, "%x %d %d\n", s.nonce, s.counter, len(s.entries))
	for i := range s.entries {
		m := &s.entries[i]
		c := m.Claim
		text = append(append(text, m.ID...), ' ', byte(m.State))
		for _, n := range []int64{
			m.life, c.Ticket, int64(c.Weight), int64(c.Max), int64(c.Priority), m.Fence,
			int64(m.ttl), int64(m.hold), int64(m.granted), int64(m.rest),
		} {
			text = strconv.AppendInt(append(text, ' '), n, 10)
		}
		text = append(append(text, " s"...), locks.FormatSlots(m.Slots)...)
		text = append(append(text, " r"...), m.Replace...)
		text = append(strconv.AppendQuote(append(text, ' '), m.Evicted), '\n')
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
	m.ID, m.State, m.Reachable = id, queue.State(state[0]), true
	m.life = w.number(0, most)
	m.Claim.Ticket = w.number(0, most)
	m.Claim.Weight = int(w.number(1, lease.MaxUnits))
	m.Claim.Max = int(w.number(0, math.MaxInt32))
	m.Claim.Priority = int(w.number(math.MinInt32, math.MaxInt32))
	m.Fence = w.number(0, most)
	m.ttl, m.hold = time.Duration(w.number(1, most)), time.Duration(w.number(0, most))
	m.granted, m.rest = locks.Instant(w.number(math.MinInt64, most)), time.Duration(w.number(0, most))
	slots := w.after("s")
	m.Replace = locks.Replacement(w.after("r"))
	switch m.Replace {
	case locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning:
	default:
		return m, errDamaged
	}
	if m.Slots, err = locks.ParseSlots(slots, lease.MaxUnits); err == nil {
		m.Evicted, err = strconv.Unquote(w.rest)
	}
	return m, cmp.Or(w.err, err)
}

// find gives the entry of an ID, or nil.
func (s *state) find(id string) *member {
	for i := range s.entries {
		if s.entries[i].ID == id {
			return &s.entries[i]
		}
	}
	return nil
}

// has reports whether a record belongs to an entry.
func (s *state) has(record string) bool {
	id, _, _ := strings.Cut(record, "-")
	m := s.find(id)
	return m != nil && m.record() == record
}

// record is the name of the entry's file. An entry that rejoins after it was taken for dead
// has another file, which nobody can be removing.
func (m *member) record() string { return m.ID + "-" + strconv.FormatInt(m.life, 10) }

// inOrder compares waiters by their places.
func inOrder(a, b *member) int {
	return cmp.Or(a.Claim.Compare(b.Claim), cmp.Compare(a.ID, b.ID))
}
