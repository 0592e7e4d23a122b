package locks

import "cmp"

// Claim is what the admission rule knows of an entry.
type Claim struct {
	Weight   int   // units taken, at least 1
	Max      int   // the largest number of units together while this entry holds; 0 if it sets no limit
	Priority int   // higher goes first
	Ticket   int64 // the order of arrival in the queue, unique within a name
}

// Compare is negative if c stands before d in the queue: higher priority first, within a
// priority first come, first served.
func (c Claim) Compare(d Claim) int {
	return cmp.Or(cmp.Compare(d.Priority, c.Priority), cmp.Compare(c.Ticket, d.Ticket))
}

// Before reports whether c stands before d in the queue.
func (c Claim) Before(d Claim) bool { return c.Compare(d) < 0 }

// Admits is the rule of admission: the sum of the weights of the holders and of c must not exceed the
// smallest max among all holders and c. So at most max units are in use while a holder with that max runs.
// Callers ask only for the first waiter, so that no waiter is overtaken.
func Admits(holders []Claim, c Claim) bool {
	limit := c.Max // 0 means no limit
	for _, h := range holders {
		if h.Max != 0 && (limit == 0 || h.Max < limit) {
			limit = h.Max
		}
	}
	room := limit - c.Weight // subtracted one by one, because a sum of weights may have more than 32 bits
	for _, h := range holders {
		room -= h.Weight
	}
	return limit == 0 || room >= 0
}

// FreeSlots returns the n lowest slots that are not taken, ascending. For an admitted claim with a max they are
// all below that max, because at most max-n units are in use.
func FreeSlots(taken func(slot int) bool, n int) []int {
	free := make([]int, 0, n)
	for slot := 0; len(free) < n; slot++ {
		if !taken(slot) {
			free = append(free, slot)
		}
	}
	return free
}
