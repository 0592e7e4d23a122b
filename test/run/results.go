package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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
	slow           []timed
	passed, failed int
	replays        []string
	problems       []string
}

type timed struct {
	seconds float64
	what    string
}

// read takes in the events of a pass to their end and shows a line for each
// package, and all output of tests that failed.
func (r *results) read(p *pass, events io.Reader) {
	output := map[string][]string{} // by package and test
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Printf("%s", line) // of a build that failed
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
		case "pass", "fail":
			if e.Action == "fail" && e.Test == "" {
				for of, text := range output { // tests that the end of their process has cut off
					if strings.HasPrefix(of, key) && of != key {
						fmt.Print(strings.Join(text, ""))
					}
				}
			}
			r.ended(p, e, output[key])
			delete(output, key)
		}
	}
}

func (r *results) ended(p *pass, e event, output []string) {
	what := fmt.Sprintf("%s %s", p.name, e.Package)
	if e.Test == "" {
		fmt.Printf("%4s %-18s %-32s %6.1fs\n", e.Action, p.name, e.Package, e.Elapsed)
		if e.Action == "fail" {
			r.replays = append(r.replays, p.replay(e.Package, ""))
			fmt.Print(strings.Join(output, ""))
		}
		return
	}
	if !strings.Contains(e.Test, "/") {
		r.slow = append(r.slow, timed{e.Elapsed, what + " " + e.Test})
	}
	if e.Action == "pass" {
		r.passed++
		return
	}
	r.failed++
	r.replays = append(r.replays, p.replay(e.Package, e.Test))
	fmt.Printf("--- %s\n%s", r.replays[len(r.replays)-1], strings.Join(output, ""))
}

// add notes how a pass ended.
func (r *results) add(p pass, err error) {
	if err != nil {
		r.problems = append(r.problems, fmt.Sprintf("%s: %v", p.name, err))
	}
}

// summary shows the slowest tests, how to replay what failed, and the counts.
func (r *results) summary(w *os.File) error {
	slices.SortFunc(r.slow, func(a, b timed) int { return int(1000 * (b.seconds - a.seconds)) })
	fmt.Fprintf(w, "\nThe slowest tests of %.0f s:\n", time.Since(r.began).Seconds())
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
