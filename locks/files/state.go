package files

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/queue"
)

// state is one version of a name's queue.
type state struct {
	Nonce   string   `json:"nonce,omitempty"` // no two versions are the same
	Counter int64    `json:"counter"`         // the highest ticket or fence so far
	Entries []member `json:"entries,omitempty"`
}

// member is an entry as a state has it. What nothing is decided by is in its record.
type member struct {
	ID       string            `json:"id"`    // the Ref's, in hexadecimal
	Life     int               `json:"life"`  // which record of it counts
	State    string            `json:"state"` // of queue.State; an offer is a grant here
	Ticket   int64             `json:"ticket,omitempty"`
	Weight   int               `json:"weight,omitempty"`
	Max      int               `json:"max,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Replace  locks.Replacement `json:"replace,omitempty"`
	Evicted  string            `json:"evicted,omitempty"`
	Slots    string            `json:"slots,omitempty"`
	Fence    int64             `json:"fence,omitempty"`
	TTL      time.Duration     `json:"ttl"`

	// Hold is how long the slot stays taken from the grant on. Once its holder
	// has left it, Rest is what remained then.
	Hold    time.Duration `json:"hold,omitempty"`
	Granted locks.Instant `json:"granted,omitempty"` // on the owner's clock; 0: it has not told yet
	Rest    time.Duration `json:"rest,omitempty"`

	slots []int
}

// The states of a member.
const (
	waits = string(rune(queue.Waiting))
	holds = string(rune(queue.Holding))
	stays = string(rune(queue.Ended)) // for its hold
	gone  = string(rune(queue.Gone))  // was evicted, and has not heard of it
)

func (s *state) text() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return append(text, '\n')
}

var errDamaged = errors.New("is not what golock has written")

func parseState(text []byte) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	for i := range s.Entries {
		m := &s.Entries[i]
		if id, err := hex.DecodeString(m.ID); err != nil || len(id) != len(locks.Ref{}.ID) {
			return nil, fmt.Errorf("entry %d: its ID %w", i, errDamaged)
		}
		var err error
		if m.slots, err = locks.ParseSlots(m.Slots, lease.MaxUnits); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		known := slices.Contains([]string{waits, holds, stays, gone}, m.State)
		if !known || m.Weight < 1 || m.Weight > lease.MaxUnits || m.Max < 0 || m.TTL <= 0 {
			return nil, fmt.Errorf("entry %d: %w", i, errDamaged)
		}
	}
	return s, nil
}

// find gives the entry of an ID, or nil.
func (s *state) find(id string) *member {
	for i := range s.Entries {
		if s.Entries[i].ID == id {
			return &s.Entries[i]
		}
	}
	return nil
}

// has reports whether a record belongs to an entry.
func (s *state) has(record string) bool {
	return slices.ContainsFunc(s.Entries, func(m member) bool { return m.record() == record })
}

// record is the name of the entry's file. An ID that comes again after it was taken for
// dead has another one: nobody can be removing that.
func (m *member) record() string { return fmt.Sprintf("%s-%d", m.ID, m.Life) }

func (m *member) claim() locks.Claim {
	return locks.Claim{Weight: m.Weight, Max: m.Max, Priority: m.Priority, Ticket: m.Ticket}
}

// entry is the member as a decision knows it.
func (m *member) entry() queue.Entry {
	return queue.Entry{
		ID: m.ID, State: queue.State(m.State[0]), Claim: m.claim(), Replace: m.Replace, Evicted: m.Evicted,
		Slots: m.slots, Fence: m.Fence, Reachable: true,
	}
}

func before(a, b *member) int {
	switch ca, cb := a.claim(), b.claim(); {
	case ca.Before(cb):
		return -1
	case cb.Before(ca):
		return 1
	}
	return 0
}

// refID is the Ref's half of an ID that was parsed.
func refID(text string) (id [16]byte) {
	_, _ = hex.Decode(id[:], []byte(text))
	return id
}
