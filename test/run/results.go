package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// results is what all passes came to.
type results struct {
	began          time.Time
	mu             sync.Mutex // guards what follows, and the lines of what is shown
	slow           []timed
	costs          []cost // in the order in which they came
	passed, failed int
	replays        []string
	problems       []string
}

type timed struct {
	seconds float64
	what    string
}

// cost is the processor time of a part of the run.
type cost struct {
	what string
	time time.Duration
}

// spend adds processor time to that of a part of the run.
func (r *results) spend(what string, worked time.Duration) {
	i := slices.IndexFunc(r.costs, func(c cost) bool { return c.what == what })
	if i < 0 {
		i = len(r.costs)
		r.costs = append(r.costs, cost{what: what})
	}
	r.costs[i].time += worked
}

// read takes in the events of a package to their end and shows all output of tests that failed. It
// returns what tests had said whose end is not told, and the package itself.
func (r *results) read(p *pass, events io.Reader) (rest map[string][]string) {
	output := map[string][]string{} // the output of each test; the key "" is the package
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return output
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Action {
		case "output":
			output[e.Test] = append(output[e.Test], e.Output)
		case "pass", "fail":
			if e.Test != "" { // how the package ended its exit code says
				r.ended(p, e, output[e.Test])
				delete(output, e.Test)
			}
		}
	}
}

func (r *results) ended(p *pass, e event, output []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, timed{e.Elapsed, fmt.Sprintf("%s %s %s", p.name, e.Package, e.Test)})
	}
	if e.Action == "pass" {
		r.passed++
		return
	}
	r.failed++
	r.replays = append(r.replays, p.replay(e.Package, e.Test))
	fmt.Printf("--- %s\n%s", r.replays[len(r.replays)-1], strings.Join(output, ""))
}

// endedPackage shows a line for a package, how long it took and how much of processors it used, and if
// it failed what is not shown yet.
func (r *results) endedPackage(w work, took, worked time.Duration, err error, rest map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how := "pass"
	if err != nil {
		how = "fail"
	}
	fmt.Printf("%4s %-18s %-32s %6.1fs %6.1fs\n", how, w.pass.name, w.path, took.Seconds(), worked.Seconds())
	r.spend(w.pass.name, worked)
	if err == nil {
		return
	}
	r.replays = append(r.replays, w.pass.replay(w.path, ""))
	for _, test := range slices.Sorted(maps.Keys(rest)) { // tests that the end of their process has cut off
		fmt.Print(strings.Join(rest[test], ""))
	}
}

// add notes what ended with an error.
func (r *results) add(what string, err error) {
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.problems = append(r.problems, fmt.Sprintf("%s: %v", what, err))
	}
}

// summary shows where the processor time went, the slowest tests, how to replay what failed, and the
// counts.
func (r *results) summary(w *os.File) error {
	fmt.Fprintf(w, "\nProcessor time of %.0f s:\n", time.Since(r.began).Seconds())
	for _, c := range r.costs {
		fmt.Fprintf(w, "%6.0fs %s\n", c.time.Seconds(), c.what)
	}
	slices.SortFunc(r.slow, func(a, b timed) int { return int(1000 * (b.seconds - a.seconds)) })
	fmt.Fprintln(w, "\nThe slowest tests:")
	for _, t := range r.slow[:min(10, len(r.slow))] {
		fmt.Fprintf(w, "%6.1fs %s\n", t.seconds, t.what)
	}
	if len(r.replays) > 0 {
		fmt.Fprintf(w, "\nReplay what failed:\n%s\n", strings.Join(r.replays, "\n"))
	}
	fmt.Fprintf(w, "\n%d passed, %d failed\n", r.passed, r.failed)
	if len(r.problems) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(r.problems, "; "))
	}
	return nil
}
