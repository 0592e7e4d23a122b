package locks

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Replacement says whom a request puts out of its way, among those that asked
// for the same themselves: the newest wins.
type Replacement string

// What a request may replace. ReplaceRunning includes ReplaceWaiting: it evicts
// the waiters ahead of it that replace anything, and the holders that replace
// the running.
const (
	ReplaceNone    Replacement = ""
	ReplaceWaiting Replacement = "waiting"
	ReplaceRunning Replacement = "running"
)

// Rival is an entry as a newcomer sees it that may replace others.
type Rival struct {
	Claim   Claim
	State   State
	Replace Replacement
	Leaving bool // it has been evicted, but is still there
}

// Replaced picks whom a newcomer that has to wait evicts, as indices: of the
// waiters ahead of it all that replace anything; with ReplaceRunning also
// holders that said the same, the oldest first and no more than it takes for
// the newcomer to fit beside the others.
func Replaced(rivals []Rival, c Claim, r Replacement) []int {
	if r == ReplaceNone {
		return nil
	}
	var picked, candidates []int
	stays := make([]bool, len(rivals))
	for i, v := range rivals {
		switch {
		case v.Leaving:
		case v.State == Waiting:
			if v.Replace != ReplaceNone && v.Claim.Before(c) {
				picked = append(picked, i)
			}
		default:
			stays[i] = true
			if r == ReplaceRunning && v.Replace == ReplaceRunning {
				candidates = append(candidates, i)
			}
		}
	}
	slices.SortFunc(candidates, func(i, j int) int { return cmp.Compare(rivals[i].Claim.Ticket, rivals[j].Claim.Ticket) })
	for _, i := range candidates {
		var beside []Claim
		for j, v := range rivals {
			if stays[j] {
				beside = append(beside, v.Claim)
			}
		}
		if Admits(beside, c) {
			break
		}
		stays[i] = false
		picked = append(picked, i)
	}
	return picked
}

// ReplacedBy tells those whom r replaces who that is: the by of their
// EvictedError.
func ReplacedBy(r Request) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("a newer run that replaces it: pid %d on %s (%s)", os.Getpid(), host, Printable(strings.Join(r.Command, " "), 60))
}

// Replacer is a Ticket that may have put others out of its way.
type Replacer interface {
	Ticket

	// Replaced are those it evicted when it was joined. It does no I/O.
	Replaced() []Entry
}

// Marked is a Lease of a store that cannot wake its owner when it is evicted.
// The owner gets SIGTERM instead, and asks. A waiter gets it too; it ends its
// Wait, which then returns the *EvictedError if that was why.
type Marked interface {
	Lease

	// Evicted is an *EvictedError if it has been evicted, else nil. It does not
	// wait, and may be called at any time from any goroutine.
	Evicted() error
}

// Evicter is a Store that can take an entry back.
type Evicter interface {
	Store

	// Evict marks an entry: by says who wants it gone, in words for its owner.
	// A waiter's place ends at once, its Wait with an *EvictedError. A holder's
	// entry stays until its golock has stopped the command and released it, or
	// its time is over; its owner's Renew ends with an *EvictedError. What is
	// held without a process (Request.Hold) ends at once, and so does the hold
	// of a holder when it releases. ErrLost: there is no such entry. After any
	// other error its owner may not have been told; the mark stays if it was
	// made. Evicting twice changes nothing, but what could not be told or ended
	// the first time is tried again.
	Evict(ctx context.Context, ref Ref, by string) error
}

// Sweeper is a Store in which something stays behind that nobody uses.
type Sweeper interface {
	Store

	// Sweep removes what is dead or unused and at least olderThan old, and says
	// how many things that were. It never removes what is live, with any number
	// of sweepers and users at once.
	Sweep(ctx context.Context, olderThan time.Duration) (removed int, err error)
}

// Forgetter is a Store that can remove all it keeps of one name.
type Forgetter interface {
	Store

	// Forget removes what is left of a name, and asks nobody: it is for a name
	// of the caller's own that nobody uses and nobody will use again.
	Forget(ctx context.Context, name string) error
}

// EvictedError says who took a place or a slot back. For a holder it means the
// same as ErrLost, but the slot stays taken until it is released or its term
// ends.
type EvictedError struct{ By string }

func (e *EvictedError) Error() string { return fmt.Sprintf("evicted by %s", Printable(e.By, 200)) }

// Is makes it an ErrLost.
func (e *EvictedError) Is(target error) bool { return target == ErrLost }
