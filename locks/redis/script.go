package redis

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/network"
	"golock/locks/queue"
)

// The script makes every decision about a lock. The beginning of queue.lua describes what it stores
// and answers.
var (
	//go:embed queue.lua
	queueScript string

	//go:embed steps.lua
	stepsScript string
)

// call has the arguments of a run of the script. Fields that a mode does not use are empty.
type call struct {
	key locks.Key

	Mode       string   `json:"mode"` // a queue.Step, "list" or "sweep"
	ID         string   `json:"id"`
	Name       string   `json:"name"` // empty if only the ref is known
	Epoch      string   `json:"epoch"`
	Record     *record  `json:"record,omitempty"` // nil unless the mode needs the record
	Subscribed bool     `json:"subscribed"`
	NoWait     bool     `json:"nowait"`
	Within     []string `json:"within,omitempty"`
	MaxQueue   *int     `json:"queue,omitempty"` // see queue.Question.MaxQueue
	By         string   `json:"by"`              // who asks; the evicted entries are told
	Age        millis   `json:"age"`             // the least age of what the mode sweep removes
	Quarantine millis   `json:"quarantine"`
	Every      millis   `json:"every"`          // how often a waiter asks (queue.AskEvery)
	Hold       millis   `json:"hold,omitempty"` // the hold that the mode hold begins
}

// tag returns the beginning of all keys of a lock.
func (s *Store) tag(key locks.Key) string { return s.target.prefix + ":{" + key.String() + "}:" }

// keys returns the keys that the script gets.
func (s *Store) keys(key locks.Key) []string {
	tag := s.tag(key)
	keys := append(make([]string, 0, 7), tag+"s", tag+"h", tag+"q", tag+"d", tag+"e", tag+"g")
	if s.target.kind != cluster {
		keys = append(keys, s.index())
	}
	return keys
}

// index returns the key of the index of all names.
func (s *Store) index() string { return s.target.prefix + ":names" }

// channel returns the channel on which messages for an entry are published.
func (s *Store) channel(ref locks.Ref) string { return s.tag(ref.Key) + "c:" + ref.ID.String() }

// reply is the answer of the script: the fields of lease.Answer by their names, and some more. The
// verdict tells which fields are set.
type reply struct {
	lease.Answer
	Recheck, Quarantine millis
	Record              json.RawMessage // the record of the entry that asked; others may have written it
	NoRunID             bool            // the server does not tell its run_id
	Entries             listing         // the entries of a list, the holders of a refusal, or the replaced entries
	Name, Found, Format string
	Removed             int
	Flaws               []flaw // what an answer that is invalid, a list or a sweep tells
}

// read returns the record and the entries of a reply to an entry. It returns an error if the reply lacks a
// record that the entry needs in order to wait or hold, or if a holder has no slots.
func (r *reply) read(c call) (stored *record, entries []locks.Entry, err error) {
	hasSlots := r.Verdict == queue.Granted || r.Verdict == queue.Held
	if len(r.Record) == 0 && (hasSlots || r.Verdict == queue.Queued) {
		return nil, nil, network.Damaged("%q without a record", r.Verdict)
	}
	entries, flawed := entriesOf(r.Entries, cmp.Or(r.Name, c.Name), c.key)
	if len(r.Record) > 0 {
		stored, err = readRecord(r.Record, false)
		if err != nil {
			flawed = append(flawed, invalid([]flaw{{c.ID, err.Error()}}, cmp.Or(r.Name, c.Name), c.key)...)
		} else if hasSlots && stored.Slots == "" {
			return nil, nil, network.Damaged("%q without slots", r.Verdict)
		}
	}
	return stored, entries, lease.Invalid(flawed)
}

// flaw says why golock cannot have written what is stored for an ID. An empty ID stands for the
// lock itself.
type flaw struct{ ID, Why string }

// invalid converts flaws of the lock with that name and key.
func invalid(all []flaw, name string, key locks.Key) (entries []locks.InvalidEntry) {
	for _, f := range all {
		i := locks.InvalidEntry{Name: name, ID: f.ID, TTL: lease.DefaultTTL, Err: errors.New(f.Why)}
		i.Ref, _ = locks.ParseRef(key.String() + "-" + f.ID)
		entries = append(entries, i)
	}
	return entries
}

// listing is the list of entries in a reply.
type listing []listed

// maxEntries and maxTexts limit the number of parts of a reply. A small reply may have many parts,
// each of which takes much more memory than its text. 10,000 entries have some 400,000 texts.
const (
	maxEntries = 20_000
	maxTexts   = 1_000_000
)

// decode parses a JSON text of the script.
func decode(text string, into any) error {
	if n := strings.Count(text, `"`) / 2; n > maxTexts {
		return network.TooLong("%d texts", n)
	}
	return json.Unmarshal([]byte(text), into)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *listing) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	begin, err := d.Token()
	if err == nil && begin != json.Delim('[') {
		return network.Damaged("no list of entries")
	}
	for err == nil && d.More() {
		if len(*l) == maxEntries {
			return network.TooLong("more than %d entries", maxEntries)
		}
		*l = append(*l, listed{})
		err = d.Decode(&(*l)[len(*l)-1])
	}
	return err
}

// listed is an entry in a reply.
type listed struct {
	State  locks.State
	ID     string
	Age    millis // the age on the server's clock
	Left   millis
	Record json.RawMessage // a record, which others may have written
	Hold   millis          // the rest of the hold
	Ended  bool            // only the hold keeps the slot
	By     string          // who evicted the entry; empty if nobody did
}

// run runs the script.
func (s *Store) run(ctx context.Context, on goredis.Scripter, c call) (r reply, err error) {
	c.Quarantine = millis(s.target.Quarantine.Milliseconds())
	question, _ := json.Marshal(c) // a call can always be encoded
	keys := s.keys(c.key)
	text, err := s.script.Run(ctx, on, keys, question).Text()
	if err != nil {
		return r, err
	}
	err = decode(text, &r)
	switch {
	case err != nil:
		// This is an outage, not a refusal: what answers at the moment may not be the server.
		return r, fmt.Errorf("%s: an answer that golock does not understand: %.200q: %w", keys[0], text, err)
	case r.Verdict == "format":
		err = fmt.Errorf("the lock is stored in format %s and this golock knows format %s: use the same version everywhere",
			locks.Printable(r.Found, 20), r.Format)
	case r.Verdict == "name":
		err = fmt.Errorf("the hash of the name %q is also that of %q, which is in use: choose another name",
			c.Name, locks.Printable(r.Found, 300))
	}
	if err != nil {
		kind := lease.ForGood
		hasEntry := queue.Step(c.Mode).HasEntry() || c.Record != nil && c.Record.Ticket != 0
		if hasEntry { // it got another answer before, so somebody has changed the state
			kind = lease.ForNewcomers
		}
		return r, &lease.Refusal{Err: err, Kind: kind}
	}
	if r.Verdict == "invalid" {
		return r, lease.Invalid(invalid(r.Flaws, r.Name, c.key))
	}
	return r, nil
}
