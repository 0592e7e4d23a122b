package etcd

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
	"golock/locks/owner"
	"golock/locks/queue"
)

// record is the value of the key of a holder or a waiter.
type record struct {
	Name  string        `json:"name"` // the name of the lock: two names may have the same key
	TTL   int64         `json:"ttl"`  // the entry's TTL in seconds
	Hold  time.Duration `json:"hold,omitempty"`
	Owner owner.Owner   `json:"owner"`

	// Since is when the owner began to wait or hold, on the clock that Boot names. Age is how long that
	// was at the time of writing; it serves other hosts, whose clocks cannot be compared.
	Boot  string        `json:"boot,omitempty"`
	Since locks.Instant `json:"since"`
	Age   time.Duration `json:"age"`

	// Only the record of a holder has these fields.
	Weight   int               `json:"weight,omitempty"`
	Max      int               `json:"max,omitempty"`
	Priority int               `json:"priority,omitempty"`
	Ticket   int64             `json:"ticket,omitempty"`
	Replace  locks.Replacement `json:"replace,omitempty"`
	Slots    string            `json:"slots,omitempty"`
	Evicted  string            `json:"evicted,omitempty"` // who has evicted the holder; "" if nobody has
}

// maxRecord is the size of the largest record that golock reads, in bytes.
const maxRecord = 1 << 16

func newRecord(r locks.Request, boot string) record {
	return record{
		Name: r.Name, TTL: int64(r.TTL / time.Second), Hold: max(r.Hold, 0), Owner: owner.Of(r), Boot: boot,
	}
}

// bootID names this machine's clock: the boot, and the time namespace.
func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, _ := os.Readlink("/proc/self/ns/time")
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// text returns the record as it is stored, with its present age.
func (r record) text(now locks.Instant) string {
	r.Age = max(now.Sub(r.Since), 0)
	text, _ := json.Marshal(r)
	return string(text)
}

// ofHolder returns the record of the entry as a holder.
func (r record) ofHolder(e *queue.Entry) record {
	c := e.Claim
	r.Weight, r.Max, r.Priority, r.Ticket, r.Replace = c.Weight, c.Max, c.Priority, c.Ticket, e.Replace
	r.Slots = locks.FormatSlots(e.Slots)
	return r
}

// amended returns the text of a record with changed fields. It keeps fields that a later version of golock has
// added.
func amended(text string, fields map[string]any) string {
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(text), &all)
	for name, value := range fields {
		all[name], _ = json.Marshal(value)
	}
	changed, _ := json.Marshal(all)
	return string(changed)
}

// parseRecord reads a record, and refuses one that golock cannot have written.
func parseRecord(text string, key locks.Key) (r record, err error) {
	if len(text) > maxRecord {
		return r, fmt.Errorf("a value of %d bytes", len(text))
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{}, fmt.Errorf("a value that is no record: %w", err)
	}
	r.Owner.Limit()
	switch {
	case r.Name == "" && r.Evicted != "": // see repaired
	case locks.CheckName(r.Name) != nil || locks.KeyOf(r.Name) != key:
		return r, fmt.Errorf("name %q", locks.Printable(r.Name, 80))
	case r.TTL < 1 || r.TTL > int64(locks.MaxTTL/time.Second):
		return r, fmt.Errorf("ttl %d", r.TTL)
	case r.Hold < 0 || r.Age < 0 || r.Since < 0:
		return r, fmt.Errorf("hold %d, age %d, since %d", r.Hold, r.Age, r.Since)
	case r.Owner.PID < 0 || r.Owner.UID < math.MinInt32 || r.Owner.UID > math.MaxUint32:
		return r, fmt.Errorf("pid %d, uid %d", r.Owner.PID, r.Owner.UID)
	}
	return r, nil
}

// repaired returns the record that an eviction writes in the place of one that cannot be read. It describes an
// exclusive holder, so no other entry gets a slot.
func repaired(by string) string {
	text, _ := json.Marshal(record{TTL: int64(lease.DefaultTTL / time.Second), Weight: 1, Max: 1, Slots: "0", Evicted: by})
	return string(text)
}

// entry returns the holder that a record describes. created is the revision in which etcd created its key.
func (r *record) entry(id string, created int64) (e queue.Entry, err error) {
	e = queue.Entry{ID: id, State: queue.Holding, Replace: r.Replace, Evicted: r.Evicted, Fence: created}
	e.Claim = locks.Claim{Weight: r.Weight, Max: r.Max, Priority: r.Priority, Ticket: r.Ticket}
	e.Slots, err = locks.ParseSlots(r.Slots, max(r.Weight, 0))
	if err == nil {
		err = e.Stored(time.Duration(r.TTL)*time.Second, r.Hold).Check()
	}
	return e, err
}

// age returns how long the owner has waited or held. For the entry of another host it is a lower limit: the sum
// of the age in the record, and of unseen, the time since the owner prolonged its lease.
func (r *record) age(boot string, now locks.Instant, unseen time.Duration) time.Duration {
	if r.Boot != "" && r.Boot == boot {
		return max(now.Sub(r.Since), 0)
	}
	return r.Age + min(unseen, math.MaxInt64-r.Age)
}

// isEvicted reports whether the record of a holder says that the holder was evicted.
func (p *pair) isEvicted() bool {
	var r struct {
		Evicted string `json:"evicted"`
	}
	return json.Unmarshal([]byte(p.value), &r) == nil && r.Evicted != ""
}
