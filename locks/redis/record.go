package redis

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"golock/locks"
	"golock/locks/owner"
)

// record is what the store keeps of an entry. Order is the priority in a form that sorts. Large
// numbers are strings, because the JSON of Lua would round them.
type record struct {
	TTL      millis            `json:"ttl"`
	Weight   int               `json:"weight"`
	Max      int               `json:"max"`
	Priority int               `json:"priority,string"`
	Order    string            `json:"order"`
	Ticket   int64             `json:"ticket,string"`
	Fence    int64             `json:"fence,string"`
	Since    int64             `json:"since,string"` // us since 1970, on the server's clock
	Join     millis            `json:"join"`         // the moment of the last join, on that clock; 0 if not subscribed
	Replace  locks.Replacement `json:"replace"`
	Hold     millis            `json:"hold"` // counts from the grant
	Slots    string            `json:"slots"`
	Owner    owner.Owner       `json:"owner"`
}

func newRecord(r locks.Request) *record {
	order := uint64(math.MaxInt64) - uint64(int64(r.Claim.Priority)) // a higher priority sorts first
	return &record{
		TTL: millis(r.TTL.Milliseconds()), Hold: wholeMillis(r.GrantHold()), Weight: r.Claim.Weight, Max: r.Claim.Max,
		Priority: r.Claim.Priority, Order: fmt.Sprintf("%016x", order),
		Replace: r.Replace, Owner: owner.Of(r),
	}
}

// readRecord parses a record that others may have written, and checks it. holds says that the entry is a holder,
// which must have slots.
func readRecord(text []byte, holds bool) (*record, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	return &r, r.check(holds)
}

// These constants limit what the script writes.
const (
	maxNumber = 9_000_000_000_000_000                     // tickets, fences and times in us
	maxMoment = 90_000_000_000_000                        // times in ms
	maxHold   = math.MaxInt64/int64(time.Millisecond) + 1 // holds in ms, rounded up
)

// check returns why golock cannot have written the record, or nil if it can. The script makes the
// same checks (flawOfRecord in queue.lua).
func (r *record) check(holds bool) error {
	for _, n := range [...]struct {
		what               string
		value, least, most int64
	}{
		{"ttl", int64(r.TTL), 1, locks.MaxTTL.Milliseconds()},
		{"hold", int64(r.Hold), 0, maxHold},
		{"join", int64(r.Join), 0, maxMoment},
		{"ticket", r.Ticket, 0, maxNumber},
		{"fence", r.Fence, 0, maxNumber},
		{"since", r.Since, 0, maxNumber},
		{"pid", int64(r.Owner.PID), 0, math.MaxInt32},
		{"uid", r.Owner.UID, math.MinInt32, math.MaxUint32},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%s %d", n.what, n.value)
		}
	}
	if order, err := hex.DecodeString(r.Order); err != nil || len(order) != 8 {
		return fmt.Errorf("order %q", locks.Printable(r.Order, 40))
	}
	slots, err := locks.ParseSlots(r.Slots, max(r.Weight, 0))
	if err != nil {
		return err
	}
	stored := locks.Stored{
		Claim:   locks.Claim{Weight: r.Weight, Max: r.Max, Priority: r.Priority, Ticket: r.Ticket},
		Replace: r.Replace, Holds: holds || len(slots) > 0, Slots: slots, Fence: r.Fence,
		TTL: r.TTL.duration(), Hold: r.Hold.duration(), Moments: []int64{r.Since},
	}
	return stored.Check()
}

// grant returns the grant in a record that was checked.
func (r *record) grant(ref locks.Ref) locks.Grant {
	slots, _ := locks.ParseSlots(r.Slots, locks.MaxUnits)
	return locks.Grant{Ref: ref, Slots: slots, Fence: r.Fence}
}

// millis is a number of ms.
type millis int64

// wholeMillis converts a duration, rounded up to ms.
func wholeMillis(d time.Duration) millis { return millis((d + time.Millisecond - 1).Milliseconds()) }

// duration converts a number of ms. It returns the longest duration if the number is too large.
func (m millis) duration() time.Duration {
	const most = millis(math.MaxInt64 / int64(time.Millisecond))
	return time.Duration(min(max(m, -most), most)) * time.Millisecond
}
