package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// metrics sums up reports, by lock.
type metrics map[lockLabels]*lockMetrics

// lockLabels tell the locks apart. The name of the host is the scraper's to add.
type lockLabels struct{ name, store string }

// lockMetrics is what is known of the runs of one lock.
type lockMetrics struct {
	outcomes map[string]int
	failed   int
	waited   float64 // seconds, all runs
	ran      float64

	try     moment // the last that asked for a slot, whatever it came to
	run     moment // the last whose command was started
	success float64
}

// moment is a run and when it ended, in seconds since 1970.
type moment struct {
	at   float64
	line *reportLine
}

func (m metrics) add(l *reportLine) {
	key := lockLabels{l.Name, l.Store}
	of := m[key]
	if of == nil {
		of = &lockMetrics{outcomes: map[string]int{}}
		m[key] = of
	}
	at, _ := l.end()
	l.Command = nil // which may be long
	of.outcomes[l.Outcome]++
	of.waited += l.Waited
	of.ran += l.Ran
	if l.ExitCode != 0 {
		of.failed++
	}
	if of.try.line == nil || at >= of.try.at {
		of.try = moment{at, l}
	}
	if l.Ran == 0 {
		return
	}
	if of.run.line == nil || at >= of.run.at {
		of.run = moment{at, l}
	}
	if l.ExitCode == 0 {
		of.success = max(of.success, at)
	}
}

// family is one metric.
type family struct {
	name, kind, help string
	value            func(of *lockMetrics) (value float64, known bool)
}

func families() []family {
	sum := func(f func(*lockMetrics) float64) func(*lockMetrics) (float64, bool) {
		return func(of *lockMetrics) (float64, bool) { return f(of), true }
	}
	last := func(f func(moment) float64) func(*lockMetrics) (float64, bool) {
		return func(of *lockMetrics) (float64, bool) {
			if of.run.line == nil {
				return 0, false
			}
			return f(of.run), true
		}
	}
	return []family{
		{"golock_failures_total", "counter", "Runs that ended with an exit code other than 0.", sum(func(of *lockMetrics) float64 { return float64(of.failed) })},
		{"golock_waited_seconds_total", "counter", "Time spent waiting for a slot, or until the waiting was given up.", sum(func(of *lockMetrics) float64 { return of.waited })},
		{"golock_ran_seconds_total", "counter", "Time for which commands ran.", sum(func(of *lockMetrics) float64 { return of.ran })},
		{"golock_last_attempt_timestamp_seconds", "gauge", "End of the last run that asked for a slot, whatever it came to.", sum(func(of *lockMetrics) float64 { return of.try.at })},
		{"golock_last_attempt_exit_code", "gauge", "Exit code of the last run that asked for a slot.", sum(func(of *lockMetrics) float64 { return float64(of.try.line.ExitCode) })},
		{"golock_last_run_timestamp_seconds", "gauge", "End of the last run whose command was started.", last(func(m moment) float64 { return m.at })},
		{"golock_last_run_waited_seconds", "gauge", "Time that the last run whose command was started waited for its slot.", last(func(m moment) float64 { return m.line.Waited })},
		{"golock_last_run_duration_seconds", "gauge", "Time for which the last command ran.", last(func(m moment) float64 { return m.line.Ran })},
		{"golock_last_run_exit_code", "gauge", "Exit code of the last run whose command was started.", last(func(m moment) float64 { return float64(m.line.ExitCode) })},
		{"golock_last_success_timestamp_seconds", "gauge", "End of the last run whose command was started and whose exit code was 0.", func(of *lockMetrics) (float64, bool) { return of.success, of.success != 0 }},
	}
}

// write writes the text format of Prometheus, version 0.0.4. There are no
// timestamps in it: node_exporter wants none.
func (m metrics) write(to io.Writer) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b lockLabels) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.store, b.store))
	})
	if len(keys) == 0 {
		return
	}
	fmt.Fprintf(to, "# HELP golock_runs_total Runs that asked for a slot, by what they came to.\n# TYPE golock_runs_total counter\n")
	for _, key := range keys {
		for _, outcome := range slices.Sorted(maps.Keys(m[key].outcomes)) {
			fmt.Fprintf(to, "golock_runs_total{%s,outcome=\"%s\"} %d\n", key, escaped(outcome), m[key].outcomes[outcome])
		}
	}
	for _, f := range families() {
		var b strings.Builder
		for _, key := range keys {
			if value, known := f.value(m[key]); known {
				fmt.Fprintf(&b, "%s{%s} %s\n", f.name, key, strconv.FormatFloat(value, 'f', -1, 64))
			}
		}
		if b.Len() > 0 {
			fmt.Fprintf(to, "# HELP %s %s\n# TYPE %s %s\n%s", f.name, f.help, f.name, f.kind, b.String())
		}
	}
}

func (k lockLabels) String() string {
	return fmt.Sprintf(`name="%s",store="%s"`, escaped(k.name), escaped(k.store))
}

// escaped is a label's value.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}
