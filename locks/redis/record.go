package redis

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/locks"
	"golock/locks/lease"
)

// record is what the store keeps of an entry.
type record struct {
	ttl     time.Duration
	claim   locks.Claim
	fence   int64
	since   int64 // us since 1970, on the server's clock
	listens hearing
	replace locks.Replacement
	hold    time.Duration // from the grant on, in whole ms
	slots   []int
	owner   string // a lease.Owner in JSON
}

// hearing is what a waiter takes in of what is published to it.
type hearing int64

const (
	nothing hearing = iota // it has not subscribed
	hints                  // that it is to ask
	grants                 // also that it has become a holder: this, or any higher number
)

// order writes a priority so that the bytes of a higher one sort before those of a
// lower one.
func order(priority int) uint64 { return uint64(math.MaxInt64) - uint64(int64(priority)) }

func (r *record) String() string {
	return fmt.Sprintf("%d %d %d %016x %016d %016d %016d %d %d %d %s %s", r.ttl.Milliseconds(), r.claim.Weight, r.claim.Max,
		order(r.claim.Priority), r.claim.Ticket, r.fence, r.since, r.listens, slices.Index(replacements(), r.replace),
		r.hold.Milliseconds(), formatSlots(r.slots), r.owner)
}

// replacements by their number in a record.
func replacements() []locks.Replacement {
	return []locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}
}

func parseRecord(text string) (record, error) {
	var r record
	fields := strings.SplitN(text, " ", 12)
	if len(fields) != 12 {
		return r, fmt.Errorf("a record with %d fields", len(fields))
	}
	var numbers [10]int64
	for i := range numbers {
		var err error
		if i == 3 {
			var n uint64
			n, err = strconv.ParseUint(fields[i], 16, 64)
			numbers[i] = int64(uint64(math.MaxInt64) - n)
		} else {
			numbers[i], err = strconv.ParseInt(fields[i], 10, 64)
		}
		if err != nil {
			return r, err
		}
	}
	for _, n := range numbers[1:4] {
		if int64(int(n)) != n {
			return r, fmt.Errorf("a record with the number %d", n)
		}
	}
	r.ttl = time.Duration(numbers[0]) * time.Millisecond
	r.claim = locks.Claim{Weight: int(numbers[1]), Max: int(numbers[2]), Priority: int(numbers[3]), Ticket: numbers[4]}
	r.fence, r.since, r.listens, r.owner = numbers[5], numbers[6], hearing(numbers[7]), fields[11]
	if numbers[8] < 0 || numbers[8] >= int64(len(replacements())) {
		return r, fmt.Errorf("a replacement of %d", numbers[8])
	}
	r.replace, r.hold = replacements()[numbers[8]], time.Duration(numbers[9])*time.Millisecond
	var err error
	r.slots, err = parseSlots(fields[10])
	return r, err
}

// formatSlots writes a field that is not empty: none is "-".
func formatSlots(slots []int) string {
	if len(slots) == 0 {
		return "-"
	}
	return locks.FormatSlots(slots)
}

func parseSlots(text string) ([]int, error) {
	switch text {
	case "-":
		return nil, nil
	case "":
		return nil, errors.New("a record without slots")
	}
	return locks.ParseSlots(text, lease.MaxUnits)
}
