//go:build integration

package campaign_test

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The sum of a campaign is docs/reliability.md: a sentence after the first mark, tables after the second.
const (
	totalsMark = "<!-- totals -->\n"
	tablesMark = "<!-- campaign -->\n"
)

// page returns the page with this sum instead of an earlier one.
func (s *summary) page(before []byte) string {
	top, rest, _ := strings.Cut(string(before), totalsMark)
	_, rest, _ = strings.Cut(rest, "\n\n")
	method, _, _ := strings.Cut(rest, tablesMark)
	b := bytes.NewBufferString(top + totalsMark + s.totals() + "\n\n" + method + tablesMark)
	total, longest := map[kind]int{}, 0.0
	for _, one := range s.Stores {
		longest = max(longest, one.Seconds)
		for k, n := range one.Faults {
			total[k] += n
		}
	}
	fmt.Fprintf(b, "\n## %s\n\nUp to %.0f minutes for each store; seed %d; load average %.0f.\n%s.\n\n",
		s.Date, longest/60, s.Seed, s.Load, s.Machine)
	b.WriteString("| store | rounds | runs | commands | runs killed | faults | excused | violations | longest free |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, one := range s.Stores {
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d | %.2f s |\n", one.Store, one.Rounds, one.Runs,
			one.Grants, one.Killed, sum(one.Faults), sum(one.Allowed), sum(one.Violations), one.LongestGap)
	}
	for _, one := range s.Stores {
		if sum(one.Violations) > 0 {
			fmt.Fprintf(b, "\nViolations on %s: %s; rounds %s.\n", one.Store, counts(one.Violations), strings.Join(one.Failing, ", "))
		}
	}
	fmt.Fprintf(b, "\nFaults on all stores together:\n\n%s.\n", counts(total))
	return b.String()
}

// totals says in one sentence what all stores together came to.
func (s *summary) totals() string {
	runs, faults, violations := 0, 0, 0
	var kinds []string
	for _, one := range s.Stores {
		runs += one.Runs
		faults += sum(one.Faults)
		violations += sum(one.Violations)
		if sum(one.Violations) > 0 {
			kinds = append(kinds, fmt.Sprintf("%s (%s)", one.Store, strings.ReplaceAll(counts(one.Violations), "\n", " ")))
		}
	}
	text := fmt.Sprintf("In %d runs, with %d faults, the campaign found %d violations", runs, faults, violations)
	if len(kinds) > 0 {
		text += ": " + strings.Join(kinds, ", ")
	}
	return text + "."
}

func sum[K comparable](of map[K]int) (n int) {
	for _, count := range of {
		n += count
	}
	return n
}

// counts lists what was counted.
func counts[K cmp.Ordered](of map[K]int) string {
	var items []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		items = append(items, fmt.Sprintf("%v: %d", k, of[k]))
	}
	return strings.Join(items, ";\n")
}

type summary struct {
	Date    string
	Machine string
	Load    float64 // the load average of the last minutes, at the end
	Seed    uint64
	Stores  []*storeSummary
}

// storeSummary is what happened on one store. Times are seconds.
type storeSummary struct {
	Store      string
	Rounds     int
	Seconds    float64
	Runs       int // golocks
	Grants     int // commands that were started
	Killed     int // golocks
	Faults     map[kind]int
	Violations map[string]int
	Allowed    map[string]int // by what is not promised
	LongestGap float64        // somebody waited and nobody was inside; without faults of servers, network, stops, holds
	Failing    []string       // rounds
}

func (s *summary) add(e *engine) *storeSummary {
	one := &storeSummary{Store: e.name, Faults: map[kind]int{}, Violations: map[string]int{}, Allowed: map[string]int{}}
	s.Stores = append(s.Stores, one)
	return one
}

func (s *storeSummary) count(p *plan, list []*history, took time.Duration) {
	s.Rounds++
	s.Seconds += took.Seconds()
	counted := map[string]bool{}
	for _, h := range list {
		for _, r := range h.runs {
			s.Runs++
			if r.command() != nil {
				s.Grants++
			}
			if r.killed {
				s.Killed++
			}
			if gap, limit := h.gap(r); limit == handed { // nothing else was the reason
				s.LongestGap = max(s.LongestGap, gap.Seconds())
			}
		}
		for _, f := range h.faults {
			if key := fmt.Sprint(f); f.token >= 0 || !counted[key] { // those that hit all are in each name's history
				counted[key] = true
				s.Faults[f.kind]++
			}
		}
	}
	for _, ahead := range p.Ahead {
		if ahead != 0 {
			s.Faults["a host's clock since boot is another"]++
		}
	}
}

func (s *summary) write(page string) error {
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscanf(string(load), "%f %f %f", new(float64), new(float64), &s.Load)
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(s.page(text)), 0o644)
}

func machine() string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	return fmt.Sprintf("Linux %s, %s, %d processors", unix.ByteSliceToString(name.Release[:]), runtime.GOARCH, runtime.NumCPU())
}
