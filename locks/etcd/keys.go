package etcd

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/queue"
)

// The keys of a lock are PREFIX/KEY/ and one of these, where KEY and ID are hexadecimal:
//
//	h/ID                                          a holder, on the lease of its owner
//	h/ID.hold                                     its hold, on a lease of its own
//	w/PRIORITY/ID/WEIGHT.MAX.REPLACE.TICKET       a waiter, on the lease of its owner
//	g/ID                                          a waiter that was evicted, on a lease of its evictor
//
// The key of a waiter has all that decides about its place. So a waiter finds its own place by reading
// keys only, however many wait. TICKET is 0 for a newcomer: its ticket is the revision in which etcd
// created the key. An entry that rejoins after its lease ended writes its old ticket.
const (
	holderPart = "h/"
	waiterPart = "w/"
	tombPart   = "g/"
	holdSuffix = ".hold"
)

// keys makes the keys of one lock. The field lock begins all of them.
type keys struct{ lock string }

func (s *Store) keysOf(key locks.Key) keys {
	return keys{s.client.target.prefix + key.String() + "/"}
}

func (k keys) all() span               { return under(k.lock) }
func (k keys) holders() span           { return under(k.lock + holderPart) }
func (k keys) waiters() span           { return under(k.lock + waiterPart) }
func (k keys) holder(id string) string { return k.lock + holderPart + id }
func (k keys) hold(id string) string   { return k.lock + holderPart + id + holdSuffix }
func (k keys) tomb(id string) string   { return k.lock + tombPart + id }

// isOfEntry reports whether a key has the form of a holder's, a waiter's or a tomb's.
func (k keys) isOfEntry(key string) bool {
	rest, isOfLock := strings.CutPrefix(key, k.lock)
	part := rest[:min(len(holderPart), len(rest))]
	return isOfLock && (part == holderPart || part == waiterPart || part == tombPart)
}

// replaceLetters has the letter for each of the replacements, in their order.
const replaceLetters = "-wr"

var replacements = [...]locks.Replacement{locks.ReplaceNone, locks.ReplaceWaiting, locks.ReplaceRunning}

func letterOf(r locks.Replacement) string {
	for i, one := range replacements {
		if one == r {
			return replaceLetters[i : i+1]
		}
	}
	return "?"
}

// waiter returns the key of a waiter.
func (k keys) waiter(e *queue.Entry) string {
	priority := ^(uint32(int32(e.Claim.Priority)) ^ 1<<31) // the highest priority sorts first
	return fmt.Sprintf("%s%s%08x/%s/%d.%d.%s.%d", k.lock, waiterPart, priority, e.ID,
		e.Claim.Weight, e.Claim.Max, letterOf(e.Replace), e.Claim.Ticket)
}

// waiterKeysOf returns the keys of the waiter that has a key: they differ in the ticket only.
func waiterKeysOf(key string) span { return under(key[:strings.LastIndexByte(key, '/')+1]) }

// parseWaiter reads the key of a waiter. With an error it returns an entry that has only the ID, if it could
// read that.
func (k keys) parseWaiter(p *pair) (e queue.Entry, err error) {
	rest := strings.TrimPrefix(p.key, k.lock+waiterPart)
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || !isID(parts[1]) {
		return e, fmt.Errorf("key %q", locks.Printable(rest, 80))
	}
	e.ID, e.State = parts[1], queue.Waiting
	words := strings.Split(parts[2], ".")
	priority, err := strconv.ParseUint(parts[0], 16, 32)
	if err != nil || len(words) != 4 || len(words[2]) != 1 || !strings.Contains(replaceLetters, words[2]) {
		return e, fmt.Errorf("key %q", locks.Printable(rest, 80))
	}
	var weight, limit int
	weight, err1 := strconv.Atoi(words[0])
	limit, err2 := strconv.Atoi(words[1])
	ticket, err3 := strconv.ParseInt(words[3], 10, 64)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return e, fmt.Errorf("key %q", locks.Printable(rest, 80))
	}
	e.Replace = replacements[strings.Index(replaceLetters, words[2])]
	e.Claim = locks.Claim{
		Weight: weight, Max: limit, Priority: int(int32(^uint32(priority) ^ 1<<31)), Ticket: cmp.Or(ticket, p.created),
	}
	e.Fence = p.created // the fence of a waiter is the revision in which it joined, or rejoined
	return e, e.Stored(0, 0).Check()
}

// isID reports whether a text is an entry's ID.
func isID(text string) bool { return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == "" }

// leasesOf returns the IDs of the etcd leases of an entry and of its hold. They are derived from the entry's
// ID: a repeated request cannot make a second lease, and any process with the ID can compute them.
func leasesOf(id locks.ID) (entryLease, holdLease int64) {
	return leasesOfText(hex.EncodeToString(id[:]))
}

// leasesOfText is like leasesOf, for the text of an ID (isID).
func leasesOfText(text string) (entryLease, holdLease int64) {
	number := func(digits string) int64 {
		n, _ := strconv.ParseUint(digits, 16, 64)
		return max(int64(n&(1<<62-1)), 1)
	}
	return number(text[:16]), number(text[16:]) | 1<<62
}
