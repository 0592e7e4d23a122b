//go:build integration

package campaign_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// This file pins nothing. It adds up what a campaign came to, for programs
// (JSON) and, in page_test.go, for people.

// summary is a whole campaign.
type summary struct {
	Date    string
	Machine string
	Load    float64 // the load average of the last minutes, at the end
	Seed    uint64
	Stores  []*storeSummary
}

// storeSummary is what happened on one store. Times are seconds.
type storeSummary struct {
	Store       string
	Rounds      int
	Seconds     float64
	Runs        int // golocks
	Grants      int // commands that were started
	Refused     int // golocks that got no slot and were not to wait for it
	Killed      int // golocks
	Lost        int // commands that were ended because their slot was lost
	Faults      map[kind]int
	Violations  map[string]int
	Allowed     map[string]int // by what is not promised
	LongestWait float64        // of one that was served, all in all
	LongestGap  float64        // somebody waited and nobody was inside; without faults of servers, network, stops, holds
	Failing     []string       // rounds
}

func (s *summary) add(e *engine) *storeSummary {
	one := &storeSummary{Store: e.name, Faults: map[kind]int{}, Violations: map[string]int{}, Allowed: map[string]int{}}
	s.Stores = append(s.Stores, one)
	return one
}

func (s *storeSummary) broken() int { return sum(s.Violations) }

// count takes in a round.
func (s *storeSummary) count(p *plan, list []*history, took time.Duration) {
	s.Rounds++
	s.Seconds += took.Seconds()
	counted := map[string]bool{}
	for _, h := range list {
		for _, r := range h.runs {
			s.Runs++
			switch c := r.command(); {
			case c != nil:
				s.Grants++
				s.LongestWait = max(s.LongestWait, time.Duration(c.from-r.started).Seconds())
			case r.code == busyCode:
				s.Refused++
			}
			if r.killed {
				s.Killed++
			}
			if r.code == lostCode {
				s.Lost++
			}
			if gap, clear := h.clearGap(r); clear {
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

// clearGap is for how long a run waited while nobody was inside, if nothing
// else was the reason.
func (h *history) clearGap(r *run) (gap time.Duration, clear bool) {
	c := r.command()
	if c == nil {
		return 0, false
	}
	gap, limit := h.gap(r)
	return gap, gap > 0 && limit == handed
}

func (s *storeSummary) found(f finding) {
	if f.excuse != "" {
		s.Allowed[f.excuse]++
		return
	}
	s.Violations[f.kind]++
}

func (s *storeSummary) String() string {
	text, _ := json.Marshal(s)
	return string(text)
}

// write writes the page, and the figures beside it.
func (s *summary) write(page string) error {
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscanf(string(load), "%f %f %f", new(float64), new(float64), &s.Load)
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(page, filepath.Ext(page))+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(s.page()), 0o644)
}

// machine describes this one in a line.
func machine() string {
	var name unix.Utsname
	_ = unix.Uname(&name)
	return fmt.Sprintf("Linux %s, %s, %d processors", unix.ByteSliceToString(name.Release[:]), runtime.GOARCH, runtime.NumCPU())
}
