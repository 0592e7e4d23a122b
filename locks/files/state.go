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

func parseState(text []byte) (*state, error) {
	lines := strings.Split(string(text), "\n")
	s, count := &state{}, 0
	_, err := fmt.Sscanf(lines[0], "%x %d %d", &s.nonce, &s.counter, &count)
	if err != nil || s.counter < 0 || len(lines)-2 != count || lines[len(lines)-1] != "" {
		return nil, errDamaged
	}
	s.entries = make([]member, count)
	for i := range s.entries {
		if s.entries[i], err = parseMember(lines[i+1]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return s, nil
}

func parseMember(line string) (m member, err error) {
	next := func() (word string) {
		word, line, _ = strings.Cut(line, " ")
		return word
	}
	valid := true
	number := func(least, most int64) int64 {
		n, err := strconv.ParseInt(next(), 10, 64)
		valid = valid && err == nil && n >= least && n <= most
		return n
	}
	const most = math.MaxInt64
	id, state := next(), next()
	if len(state) != 1 || !strings.Contains("WHEG", state) || !isID(id) {
		return m, errDamaged
	}
	m.ID, m.State, m.Reachable = id, queue.State(state[0]), true
	m.life = number(0, most)
	m.Claim.Ticket = number(0, most)
	m.Claim.Weight = int(number(1, lease.MaxUnits))
	m.Claim.Max = int(number(0, math.MaxInt32))
	m.Claim.Priority = int(number(math.MinInt32, math.MaxInt32))
	m.Fence = number(0, most)
	m.ttl, m.hold = time.Duration(number(1, most)), time.Duration(number(0, most))
	m.granted, m.rest = locks.Instant(number(math.MinInt64, most)), time.Duration(number(0, most))
	slots, isSlots := strings.CutPrefix(next(), "s")
	replace, isReplace := strings.CutPrefix(next(), "r")
	m.Replace = locks.Replacement(replace)
	known := []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}
	if !valid || !isSlots || !isReplace || !slices.Contains(known, m.Replace) {
		return m, errDamaged
	}
	if m.Slots, err = locks.ParseSlots(slots, lease.MaxUnits); err == nil {
		m.Evicted, err = strconv.Unquote(line)
	}
	return m, err
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
