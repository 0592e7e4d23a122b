package locks

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Replacement says whom a request evicts (--replace). It evicts only runs that were started with
// --replace too: the newest run wins.
type Replacement string

// The replacements. ReplaceWaiting evicts the waiters ahead that are not ReplaceNone. ReplaceRunning also
// evicts holders with ReplaceRunning.
const (
	ReplaceNone    Replacement = ""
	ReplaceWaiting Replacement = "waiting"
	ReplaceRunning Replacement = "running"
)

// Rival is an entry that a newcomer may replace.
type Rival struct {
	Claim    Claim
	IsWaiter bool
	Replace  Replacement
	Leaving  bool // the entry has been evicted, or is dead
}

// Replaced returns the indices of the rivals that a newcomer evicts if it has to wait: all waiters ahead
// of it that are not ReplaceNone, and with ReplaceRunning also holders with ReplaceRunning, the oldest
// first, until the newcomer fits beside the others. c is the newcomer's claim, r its replacement.
func Replaced(rivals []Rival, c Claim, r Replacement) []int {
	if r == ReplaceNone {
		return nil
	}
	var picked, candidates []int
	stays := map[int]Claim{} // the holders that stay, by their indices
	for i, v := range rivals {
		switch {
		case v.Leaving:
		case v.IsWaiter:
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

// ReplacedBy describes the process of a request to the runs that it replaces (EvictedError.By).
func ReplacedBy(r Request) string {
	host, _ := os.Hostname()
	command := Printable(strings.Join(r.Command, " "), 60)
	return fmt.Sprintf("a newer run that replaces it: pid %d on %s (%s)", os.Getpid(), host, command)
}
