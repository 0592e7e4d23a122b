package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// metrics are the sums of reports, by lock.
type metrics map[lockLabels]*lockMetrics

// lockLabels name a lock. The scraper adds the host.
type lockLabels struct{ name, store string }

// lockMetrics sums up the runs of one lock.
type lockMetrics struct {
	outcomes    map[string]int
	failed      int
	waited, ran float64 // seconds, all runs

	attempt finishedRun // the last run
	started finishedRun // the last run whose command was started
	success float64     // the end of the last run with exit code 0
}

// finishedRun is a run and its end, in seconds since 1970.
type finishedRun struct {
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
	l.Command = nil // it may be long
	of.outcomes[l.Outcome]++
	of.waited += l.Waited
	of.ran += l.Ran
	if l.ExitCode != 0 {
		of.failed++
	}
	if of.attempt.line == nil || at >= of.attempt.at {
		of.attempt = finishedRun{at, l}
	}
	if l.Ran == 0 {
		return
	}
	if of.started.line == nil || at >= of.started.at {
		of.started = finishedRun{at, l}
	}
	if l.ExitCode == 0 {
		of.success = max(of.success, at)
	}
}

// family is one metric; a value of NaN is left out.
type family struct {
	name, kind, help string
	value            func(of *lockMetrics) float64
}

func families() []family {
	started := func(value func(finishedRun) float64) func(*lockMetrics) float64 {
		return func(of *lockMetrics) float64 {
			if of.started.line == nil {
				return math.NaN()
			}
			return value(of.started)
		}
	}
	return []family{
		{"golock_failures_total", "counter", "Runs that ended with an exit code other than 0.",
			func(of *lockMetrics) float64 { return float64(of.failed) }},
		{"golock_waited_seconds_total", "counter", "Time spent waiting for a slot, or until the waiting was given up.",
			func(of *lockMetrics) float64 { return of.waited }},
		{"golock_ran_seconds_total", "counter", "Time for which commands ran.",
			func(of *lockMetrics) float64 { return of.ran }},
		{"golock_last_attempt_timestamp_seconds", "gauge", "End of the last run that asked for a slot, whatever its outcome.",
			func(of *lockMetrics) float64 { return of.attempt.at }},
		{"golock_last_attempt_exit_code", "gauge", "Exit code of the last run that asked for a slot.",
			func(of *lockMetrics) float64 { return float64(of.attempt.line.ExitCode) }},
		{"golock_last_run_timestamp_seconds", "gauge", "End of the last run whose command was started.",
			started(func(r finishedRun) float64 { return r.at })},
		{"golock_last_run_waited_seconds", "gauge", "Time that the last run whose command was started waited for its slot.",
			started(func(r finishedRun) float64 { return r.line.Waited })},
		{"golock_last_run_duration_seconds", "gauge", "Time for which the last command ran.",
			started(func(r finishedRun) float64 { return r.line.Ran })},
		{"golock_last_run_exit_code", "gauge", "Exit code of the last run whose command was started.",
			started(func(r finishedRun) float64 { return float64(r.line.ExitCode) })},
		{"golock_last_success_timestamp_seconds", "gauge", "End of the last run whose command was started and whose exit code was 0.",
			func(of *lockMetrics) float64 {
				if of.success == 0 {
					return math.NaN()
				}
				return of.success
			}},
	}
}

// write writes Prometheus' text format, version 0.0.4, without timestamps.
func (m metrics) write(to io.Writer) {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b lockLabels) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.store, b.store))
	})
	if len(keys) == 0 {
		return
	}
	fmt.Fprintf(to, "# HELP golock_runs_total Runs that asked for a slot, by outcome.\n# TYPE golock_runs_total counter\n")
	for _, key := range keys {
		for _, outcome := range slices.Sorted(maps.Keys(m[key].outcomes)) {
			fmt.Fprintf(to, "golock_runs_total{%s,outcome=\"%s\"} %d\n", key, escaped(outcome), m[key].outcomes[outcome])
		}
	}
	for _, f := range families() {
		var b strings.Builder
		for _, key := range keys {
			if value := f.value(m[key]); !math.IsNaN(value) {
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

// escaped gives the value of a label.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}
