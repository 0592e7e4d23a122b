package files

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
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
	nonce   uint64 // a random number, so that no two versions are the same
	counter int64  // the highest ticket or fence so far
	entries []member
	extra   string // words that a later version of golock has added to the first line
}

// member is an entry as a state has it. The fields that no decision needs are in the entry's record.
type member struct {
	queue.Entry // a Tombstone stands for an evicted waiter that has not noticed yet; no entry is Offered

	life int64 // the number in the name of the record file, ID-life; it grows each time the entry rejoins
	ttl  time.Duration

	hold    time.Duration // how long the slots stay taken after the grant
	granted locks.Instant // the moment of the grant on the owner's clock; 0 if it is not known yet
	rest    time.Duration // the rest of the hold when the holder left; only in the state Ended
	extra   string        // words that a later version of golock has added to the line

	flaw error  // why golock cannot have written the line; nil if golock can have written it
	line string // the line, if it has a flaw; the state keeps it until the entry is evicted or dead
}

// hasSlots reports whether the slots of the entry are taken.
func (m *member) hasSlots() bool { return m.State == queue.Holding || m.State == queue.Ended }

// text returns the state as a version has it. parseState reads it.
func (s *state) text() []byte {
	text := fmt.Appendf(nil, "%x %d %d%s\n", s.nonce, s.counter, len(s.entries), s.extra)
	for i := range s.entries {
		m := &s.entries[i]
		if m.flaw != nil {
			text = append(append(text, m.line...), '\n')
			continue
		}
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
		text = strconv.AppendQuote(append(text, ' '), m.Evicted)
		text = append(append(text, m.extra...), '\n')
	}
	return text
}

var errDamaged = errors.New("is not what golock has written")

// maxMembers is the largest number of entries in a state that golock reads; 10,000 entries always work. A text
// of maxState bytes could have millions of lines, and each entry takes more memory than its line.
const maxMembers = 20_000

// parseState reads the text of a state. A line that golock cannot have written becomes a member with a flaw. An
// error says that the first line or the number of lines is wrong.
func parseState(text []byte) (*state, error) {
	n := bytes.Count(text, []byte("\n")) - 1
	if n > maxMembers {
		return nil, fmt.Errorf("%d entries, and golock reads %d: %w", n, maxMembers, errDamaged)
	}
	lines := strings.Split(string(text), "\n")
	s, count := &state{}, 0
	_, err := fmt.Sscanf(lines[0], "%x %d %d", &s.nonce, &s.counter, &count)
	if err != nil || s.counter < 0 || len(lines)-2 != count || lines[len(lines)-1] != "" {
		return nil, errDamaged
	}
	if s.counter > locks.MaxNumber {
		return nil, fmt.Errorf("counter %d: %w", s.counter, errDamaged)
	}
	if words := strings.SplitAfterN(lines[0], " ", 4); len(words) == 4 {
		s.extra = " " + words[3]
	}
	s.entries = make([]member, count)
	for i, line := range lines[1 : count+1] {
		m, err := parseMember(line)
		if err != nil {
			m = flawed(m, line, err)
		}
		s.entries[i] = m
	}
	return s, nil
}

// flawed returns an entry for a line that golock cannot have written. The entry counts as a holder. It has
// the times that can be read in the line, and observe compares them with the entry's record: a flaw in
// one word must not end the lease or the hold of an owner that goes on.
func flawed(m member, line string, err error) member {
	f := member{
		Entry: queue.Entry{
			ID: m.ID, State: queue.Holding, Claim: locks.Claim{Weight: 1, Max: 1}, Reachable: true, Invalid: true,
		},
		life: max(m.life, 0), flaw: err, line: line,
	}
	if f.ID == "" { // two such lines are two entries, each with its own time
		f.ID = fmt.Sprintf("unknown%x", sha256.Sum256([]byte(line)))
	}
	if m.State != queue.Waiting { // the hold of a waiter has not begun
		f.hold, f.granted = max(m.hold, 0), m.granted
	}
	if m.ttl > 0 && m.ttl <= locks.MaxTTL {
		f.ttl = m.ttl
	}
	return f
}

// invalid returns the entries with a flaw, except those with an ID in except.
func (d *directory) invalid(s *state, except map[string]bool) (all []locks.InvalidEntry) {
	for i := range s.entries {
		m := &s.entries[i]
		if m.flaw == nil || except[m.ID] {
			continue
		}
		e := locks.InvalidEntry{Name: d.name, ID: m.ID, TTL: cmp.Or(m.ttl, lease.DefaultTTL), Err: m.flaw}
		if !isID(m.ID) {
			e.ID = m.line
		}
		e.Ref, _ = locks.ParseRef(d.key.String() + "-" + m.ID)
		all = append(all, e)
	}
	return all
}

// lineReader reads the words of an entry's line. err is the first mistake in it.
type lineReader struct {
	rest string
	err  error
}

func (r *lineReader) word() (word string) {
	word, r.rest, _ = strings.Cut(r.rest, " ")
	return word
}

// fail notes a mistake, unless there was one before.
func (r *lineReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// number reads a number. It returns 0 after a mistake.
func (r *lineReader) number() int64 {
	word := r.word()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		r.fail("number %q", locks.Printable(word, 40))
		return 0
	}
	return n
}

// unsigned reads a number that is not negative.
func (r *lineReader) unsigned() int64 {
	n := r.number()
	if n < 0 {
		r.fail("number %d", n)
	}
	return n
}

// integer reads a number that an int of 32 bits can hold: a larger one must not become another number.
func (r *lineReader) integer() int {
	n := r.number()
	if int64(int(n)) != n {
		r.fail("number %d", n)
	}
	return int(n)
}

// readIDAndState reads the first two words of an entry's line.
func (m *member) readIDAndState(r *lineReader) {
	id := r.word()
	state := r.word()
	isState := len(state) == 1 && strings.Contains("WHEG", state)
	switch {
	case !isID(id):
		r.fail("an ID is 32 hexadecimal digits")
	case !isState:
		m.ID = id
		r.fail("state %q", locks.Printable(state, 40))
	default:
		m.ID, m.State = id, queue.State(state[0])
	}
}

// parseMember reads an entry's line. After an error the member has the ID, life and times that could
// be read. It has no times if the line has a word too few or too many.
func parseMember(line string) (m member, err error) {
	r := &lineReader{rest: line}
	m.Reachable = true
	m.readIDAndState(r)
	m.life = r.unsigned()
	m.Claim.Ticket = r.number()
	m.Claim.Weight = r.integer()
	m.Claim.Max = r.integer()
	m.Claim.Priority = r.integer()
	m.Fence = r.number()
	m.ttl = time.Duration(r.number())
	m.hold = time.Duration(r.number())
	m.granted = locks.Instant(r.number())
	m.rest = time.Duration(r.unsigned())
	slots, isSlots := strings.CutPrefix(r.word(), "s")
	replace, isReplace := strings.CutPrefix(r.word(), "r")
	m.Replace = locks.Replacement(replace)
	if !isSlots && !isReplace { // a word is missing or too many: the numbers may be of other fields
		m.ttl, m.hold, m.granted, m.rest = 0, 0, 0, 0
	}
	switch {
	case r.err != nil:
		return m, r.err
	case !isSlots || !isReplace:
		return m, errDamaged
	case m.ttl == 0:
		return m, errors.New("no TTL")
	}
	m.Slots, err = locks.ParseSlots(slots, max(m.Claim.Weight, 0))
	if err != nil {
		return m, err
	}
	quoted, err := strconv.QuotedPrefix(r.rest)
	if err != nil {
		return m, errDamaged
	}
	m.Evicted, _ = strconv.Unquote(quoted)
	m.extra = r.rest[len(quoted):]
	if m.extra != "" && m.extra[0] != ' ' {
		return m, errDamaged
	}
	return m, m.Stored(m.ttl, m.hold).Check()
}

// find returns the entry of an ID, or nil.
func (s *state) find(id string) *member {
	for i := range s.entries {
		if s.entries[i].ID == id {
			return &s.entries[i]
		}
	}
	return nil
}

// hasRecord reports whether a record file belongs to an entry of the state.
func (s *state) hasRecord(record string) bool {
	id, _, _ := strings.Cut(record, "-")
	m := s.find(id)
	return m != nil && m.record() == record
}

// records returns the names of the record files of all entries.
func (s *state) records() map[string]bool {
	all := make(map[string]bool, len(s.entries))
	for i := range s.entries {
		all[s.entries[i].record()] = true
	}
	return all
}

// record is the name of the entry's record file. An entry that rejoins after it was taken for dead
// gets another file: somebody may be removing the old one.
func (m *member) record() string { return m.ID + "-" + strconv.FormatInt(m.life, 10) }

// byPlace returns the entries that have slots, and all others, which are sorted by their places.
func (s *state) byPlace() (holders, others []*member) {
	for i := range s.entries {
		m := &s.entries[i]
		if m.hasSlots() {
			holders = append(holders, m)
		} else {
			others = append(others, m)
		}
	}
	slices.SortFunc(others, compareByPlace)
	return holders, others
}

// compareByPlace compares waiters by their places.
func compareByPlace(a, b *member) int {
	return cmp.Or(a.Claim.Compare(b.Claim), cmp.Compare(a.ID, b.ID))
}
