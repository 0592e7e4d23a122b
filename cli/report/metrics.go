package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Metrics count the runs of each lock for Prometheus. The scraper adds the host to them.
type Metrics struct {
	values  map[series]float64
	streaks map[string]*streak // the keys are the labels of locks
}

// series is a metric with labels, as Prometheus identifies a sequence of values.
type series struct{ metric, labels string }

// metricHelp names all metrics, in the order in which they are written.
var metricHelp = [][2]string{
	{"golock_runs_total", "Runs that asked for a slot, by outcome."},
	{"golock_failures_total", "Runs that ended with an exit code other than 0."},
	{"golock_waited_seconds_total", "Time spent waiting for a slot, or until the waiting was given up."},
	{"golock_ran_seconds_total", "Time for which commands ran."},
	{"golock_skipped_in_a_row", "Runs without a slot in time (outcome busy) since the last run that had its turn."},
	{"golock_last_attempt_timestamp_seconds", "End of the last run that asked for a slot, whatever its outcome."},
	{"golock_last_attempt_exit_code", "Exit code of the last run that asked for a slot."},
	{"golock_last_run_timestamp_seconds", "End of the last run whose command was started."},
	{"golock_last_run_waited_seconds", "Time that the last run whose command was started waited for its slot."},
	{"golock_last_run_duration_seconds", "Time for which the last command ran."},
	{"golock_last_run_exit_code", "Exit code of the last run whose command was started."},
	{"golock_last_success_timestamp_seconds", "End of the last run whose command was started and whose exit code was 0."},
}

// NewMetrics returns metrics of no runs.
func NewMetrics() *Metrics {
	return &Metrics{values: map[series]float64{}, streaks: map[string]*streak{}}
}

// Add counts a run.
func (m *Metrics) Add(line *Line) {
	code := float64(line.ExitCode)
	lock := fmt.Sprintf(`name="%s",store="%s"`, EscapeLabel(line.Name), EscapeLabel(line.Store))
	m.values[series{"golock_runs_total", fmt.Sprintf(`%s,outcome="%s"`, lock, EscapeLabel(line.Outcome))}]++
	m.values[series{"golock_failures_total", lock}] += 0 // the series is there from the first run on
	if code != 0 {
		m.values[series{"golock_failures_total", lock}]++
	}
	m.values[series{"golock_waited_seconds_total", lock}] += line.Waited
	m.values[series{"golock_ran_seconds_total", lock}] += line.Ran
	if m.streaks[lock] == nil {
		m.streaks[lock] = &streak{}
	}
	m.streaks[lock].add(line)

	end := line.End()
	m.setLast("golock_last_attempt", lock, map[string]float64{"_timestamp_seconds": end, "_exit_code": code})
	if line.Started() {
		m.setLast("golock_last_run", lock, map[string]float64{
			"_timestamp_seconds": end, "_waited_seconds": line.Waited, "_duration_seconds": line.Ran, "_exit_code": code,
		})
	}
	if line.Started() && line.ExitCode == 0 {
		m.setLast("golock_last_success", lock, map[string]float64{"_timestamp_seconds": end})
	}
}

// setLast sets the metrics of the last run, unless the metrics of a later run are set.
func (m *Metrics) setLast(prefix, lock string, values map[string]float64) {
	const timestamp = "_timestamp_seconds"
	if end, ok := m.values[series{prefix + timestamp, lock}]; ok && values[timestamp] < end {
		return
	}
	for name, value := range values {
		m.values[series{prefix + name, lock}] = value
	}
}

// streak finds the skipped runs since the last run that had its turn. Lines come in any order: those
// of several files, and of runs that ended at the same time.
type streak struct {
	turn    float64   // the end of the last run that had its turn, in seconds since 1970
	skipped []float64 // the ends of skipped runs that are later
}

func (s *streak) add(line *Line) {
	end := line.End()
	switch {
	case line.hadTurn() && end > s.turn:
		s.turn = end
		s.skipped = slices.DeleteFunc(s.skipped, func(skip float64) bool { return skip <= end })
	case line.Outcome == busy && end > s.turn:
		s.skipped = append(s.skipped, end)
	}
}

// EscapeLabel gives the value of a label, as Prometheus reads it.
func EscapeLabel(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}

// Write writes Prometheus' text format, version 0.0.4, without timestamps.
func (m *Metrics) Write(to io.Writer) error {
	for lock, s := range m.streaks {
		m.values[series{"golock_skipped_in_a_row", lock}] = float64(len(s.skipped))
	}
	var b strings.Builder
	all := slices.SortedFunc(maps.Keys(m.values), func(a, b series) int { return cmp.Compare(a.labels, b.labels) })
	for _, metric := range metricHelp {
		name, kind := metric[0], "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		head := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, metric[1], name, kind)
		for _, s := range all {
			if s.metric == name {
				fmt.Fprintf(&b, "%s%s{%s} %s\n", head, name, s.labels, strconv.FormatFloat(m.values[s], 'f', -1, 64))
				head = ""
			}
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
