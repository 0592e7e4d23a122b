package locks

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Replacement says whom a request evicts, among those that asked for the same
// themselves: the newest wins.
type Replacement string

// A request may replace these. ReplaceRunning includes ReplaceWaiting: it evicts
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
	Waits   bool
	Replace Replacement
	Leaving bool // it has been evicted, or is dead
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
	stays := map[int]Claim{} // the holders that stay, by their indices
	for i, v := range rivals {
		switch {
		case v.Leaving:
		case v.Waits:
			if v.Replace != ReplaceNone && v.Claim.Before(c) {
				picked = append(picked, i)
			}
		default:
			stays[i] = v.Claim
			if r == ReplaceRunning && v.Replace == ReplaceRunning {
				candidates = append(candidates, i)
			}
		}
	}
	slices.SortFunc(candidates, func(i, j int) int { return cmp.Compare(rivals[i].Claim.Ticket, rivals[j].Claim.Ticket) })
	for _, i := range candidates {
		if Admits(slices.Collect(maps.Values(stays)), c) {
			break
		}
		delete(stays, i)
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
