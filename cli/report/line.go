// Package report reads what golock run --report has written, and sums it up: as metrics, as a
// table, and (package webpage) as a page with pictures. It never prints.
package report

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"golock/locks"
)

// Line is a line of a report: what became of one run that asked for a slot. Durations are in seconds.
// Programs rely on the names of its members.
type Line struct {
	Name     string    `json:"name"`
	Store    string    `json:"store"`
	ID       string    `json:"id"`
	Since    time.Time `json:"since"`  // when golock began to wait
	Waited   float64   `json:"waited"` // how long golock waited for the slot, or until it gave up
	Ran      float64   `json:"ran"`    // 0 if the command was not started
	ExitCode int       `json:"exit_code"`
	Signal   string    `json:"signal"` // the signal that killed the command, or ended the waiting; empty if none did
	Outcome  string    `json:"outcome"`
	Slots    []int     `json:"slots"`
	Fence    int64     `json:"fence"`
	Unlocked bool      `json:"unlocked,omitempty"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	User     string    `json:"user"`
	Command  []string  `json:"command"`
	Note     string    `json:"note,omitempty"`  // why the run was there
	Names    []string  `json:"names,omitempty"` // all names of a run with several; Name, ID, Slots and Fence are of the last one

	// WaitedFor are those who held the slot when the run first waited, or was turned away.
	WaitedFor []Holder `json:"waited_for,omitempty"`
}

// Holder describes who held a slot, as far as the store's queue says it.
type Holder struct {
	ID      string   `json:"id"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	User    string   `json:"user"`
	Command []string `json:"command"`
	Note    string   `json:"note,omitempty"`
	Unkept  bool     `json:"no_process,omitempty"` // acquire --for none took it
}

// The outcomes of a line that mean something to this package. Package runner has the others.
const (
	ended       = "ended"
	timeLimit   = "time-limit"
	busy        = "busy"
	lost        = "lost"
	interrupted = "interrupted"

	// OutcomeUnavailable says that the store was out of reach, or refused for a temporary reason.
	OutcomeUnavailable = "unavailable"

	// OutcomeUnlocked says that the command ran without a slot, and ended.
	OutcomeUnlocked = "unlocked"
)

// parse reads a line. It fails if the line lacks what every report has.
func parse(text []byte) (*Line, error) {
	line := &Line{}
	err := json.Unmarshal(text, line)
	if err != nil {
		return nil, err
	}
	isBad := func(name string) bool { return locks.CheckName(name) != nil }
	hasBadName := isBad(line.Name) || slices.ContainsFunc(line.Names, isBad)
	if hasBadName || line.Outcome == "" || line.Since.IsZero() {
		return nil, errors.New("no name, outcome or since")
	}
	return line, nil
}

// perName returns a line for each of the run's names.
func (l *Line) perName() []*Line {
	if len(l.Names) == 0 {
		return []*Line{l}
	}
	ref, noRef := locks.ParseRef(l.ID)
	var all []*Line
	for _, name := range l.Names {
		one := *l
		one.Name = name
		if noRef == nil {
			one.ID = ref.Beside(locks.KeyOf(name)).String()
		}
		all = append(all, &one)
	}
	return all
}

// End is when the run ended, in seconds since 1970.
func (l *Line) End() float64 { return l.Begin() + l.Waited + l.Ran }

// Begin is when the run asked for a slot, in seconds since 1970.
func (l *Line) Begin() float64 { return float64(l.Since.UnixMicro()) / 1e6 }

// Started reports whether the command was started.
func (l *Line) Started() bool { return l.Ran > 0 }

// hadTurn reports whether the run came to its turn: it got a slot, or ran without one.
func (l *Line) hadTurn() bool { return l.Started() || len(l.Slots) > 0 }
