package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/cli/term"
	"golock/locks"
)

type reportCommand struct {
	Textfile textFlag   `name:"textfile" placeholder:"FILE" help:"Replace FILE, in one step, instead of printing: for node_exporter's textfile collector."`
	Reports  []textFlag `arg:"" optional:"" name:"reports" sep:"none" placeholder:"FILE" help:"Files that --report has written, in any order."`
}

func (*reportCommand) Help() string {
	return `Sums up what golock run --report has written, by lock: the number of runs and their
outcomes, and of the last one when it ended, how long it waited and ran, its exit code.
Give it all files of one node_exporter at once, rotated ones too.

Examples:
  golock report /var/log/golock.jsonl
  * * * * * golock report --textfile /var/lib/prometheus/node-exporter/golock.prom /var/log/golock.jsonl
        a crontab line; the metrics are described in docs/operations.md`
}

// run converts reports to metrics. It writes nothing before it has read all.
func (c *reportCommand) run(out *term.Printer) error {
	if len(c.Reports) == 0 {
		return usageError{errors.New("missing the files that golock run --report has written; see golock report --help")}
	}
	m := metrics{}
	for _, path := range c.Reports {
		f, err := os.Open(path.text())
		if err != nil {
			return fmt.Errorf("the report cannot be read: %w", err)
		}
		err = m.read(f, func(line int, err error) {
			out.Warn(fmt.Sprintf("%s:%d: not a line of --report, skipped: %v", path.text(), line, err))
		})
		f.Close()
		if err != nil {
			return fmt.Errorf("the report cannot be read: %w", err)
		}
	}
	var b bytes.Buffer
	m.write(&b)
	if !c.Textfile.given() {
		return printOut(b.String())
	}
	if err := replaceFile(c.Textfile.text(), b.Bytes()); err != nil {
		return fmt.Errorf("the textfile cannot be written: %w", err)
	}
	return nil
}

// longestLine is more than a line of --report can have: a command has at most
// 2 MiB, and JSON makes it at most six times as long.
const longestLine = 16 << 20

// read adds the lines of a report. It calls bad for a malformed line and goes on:
// the last one may be incomplete.
func (m metrics) read(from io.Reader, bad func(line int, err error)) error {
	lines := bufio.NewReader(from)
	for n := 1; ; n++ {
		text, tooLong, err := readLine(lines)
		if err != nil && err != io.EOF {
			return err
		}
		var line reportLine
		if tooLong {
			bad(n, errors.New("longer than 16 MiB"))
		} else if len(bytes.TrimSpace(text)) > 0 {
			if end, problem := line.parse(text); problem != nil {
				bad(n, problem)
			} else {
				m.add(&line, end)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine reads a line, and drops one that is too long. The last one ends with io.EOF.
func readLine(from *bufio.Reader) (line []byte, tooLong bool, err error) {
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var part []byte
		part, err = from.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > longestLine; !tooLong {
			line = append(line, part...)
		}
	}
	return line, tooLong, err
}

// parse gives the end of the run, in seconds since 1970.
func (l *reportLine) parse(text []byte) (end float64, err error) {
	if err := json.Unmarshal(text, l); err != nil {
		return 0, err
	}
	if locks.CheckName(l.Name) != nil || l.Outcome == "" {
		return 0, errors.New("no name or no outcome")
	}
	since, err := time.Parse(time.RFC3339Nano, l.Since)
	if err != nil {
		return 0, fmt.Errorf("since: %w", err)
	}
	return float64(since.UnixMicro())/1e6 + l.Waited + l.Ran, nil
}

// replaceFile replaces a file in one step. The temporary file does not end in
// .prom, so that node_exporter ignores it.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = cmp.Or(err, f.Chmod(0o644), f.Close()) // another user reads it
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// metrics are the sums of reports, by lock.
type metrics map[lockLabels]*lockMetrics

// lockLabels name a lock. The scraper adds the host.
type lockLabels struct{ name, store string }

func (l lockLabels) String() string {
	return fmt.Sprintf(`name="%s",store="%s"`, escaped(l.name), escaped(l.store))
}

// escaped gives the value of a label.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}

// lockMetrics sums up the runs of one lock.
type lockMetrics struct {
	outcomes            map[string]int
	failed, waited, ran float64 // of all runs; times are seconds

	attempt lastRun // that asked for a slot
	started lastRun // whose command was started
	success lastRun // whose command was started and whose exit code was 0
}

// lastRun is a run and its end, in seconds since 1970; all is NaN if there was none.
type lastRun struct{ end, waited, ran, exitCode float64 }

func (l *lastRun) update(r lastRun) {
	if !(r.end < l.end) { // NaN is not less
		*l = r
	}
}

func (m metrics) add(line *reportLine, end float64) {
	key := lockLabels{line.Name, line.Store}
	of := m[key]
	if of == nil {
		none := lastRun{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
		of = &lockMetrics{outcomes: map[string]int{}, attempt: none, started: none, success: none}
		m[key] = of
	}
	of.outcomes[line.Outcome]++
	of.waited += line.Waited
	of.ran += line.Ran
	if line.ExitCode != 0 {
		of.failed++
	}
	run := lastRun{end, line.Waited, line.Ran, float64(line.ExitCode)}
	of.attempt.update(run)
	if line.Ran > 0 {
		of.started.update(run)
	}
	if line.Ran > 0 && line.ExitCode == 0 {
		of.success.update(run)
	}
}

// family is one metric; a value of NaN is left out.
type family struct {
	name, help string
	value      func(of *lockMetrics) float64
}

func families() []family {
	return []family{
		{"golock_failures_total", "Runs that ended with an exit code other than 0.",
			func(of *lockMetrics) float64 { return of.failed }},
		{"golock_waited_seconds_total", "Time spent waiting for a slot, or until the waiting was given up.",
			func(of *lockMetrics) float64 { return of.waited }},
		{"golock_ran_seconds_total", "Time for which commands ran.",
			func(of *lockMetrics) float64 { return of.ran }},
		{"golock_last_attempt_timestamp_seconds", "End of the last run that asked for a slot, whatever its outcome.",
			func(of *lockMetrics) float64 { return of.attempt.end }},
		{"golock_last_attempt_exit_code", "Exit code of the last run that asked for a slot.",
			func(of *lockMetrics) float64 { return of.attempt.exitCode }},
		{"golock_last_run_timestamp_seconds", "End of the last run whose command was started.",
			func(of *lockMetrics) float64 { return of.started.end }},
		{"golock_last_run_waited_seconds", "Time that the last run whose command was started waited for its slot.",
			func(of *lockMetrics) float64 { return of.started.waited }},
		{"golock_last_run_duration_seconds", "Time for which the last command ran.",
			func(of *lockMetrics) float64 { return of.started.ran }},
		{"golock_last_run_exit_code", "Exit code of the last run whose command was started.",
			func(of *lockMetrics) float64 { return of.started.exitCode }},
		{"golock_last_success_timestamp_seconds", "End of the last run whose command was started and whose exit code was 0.",
			func(of *lockMetrics) float64 { return of.success.end }},
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
		kind := "gauge"
		if strings.HasSuffix(f.name, "_total") {
			kind = "counter"
		}
		var samples strings.Builder
		for _, key := range keys {
			if value := f.value(m[key]); !math.IsNaN(value) {
				fmt.Fprintf(&samples, "%s{%s} %s\n", f.name, key, strconv.FormatFloat(value, 'f', -1, 64))
			}
		}
		if samples.Len() > 0 {
			fmt.Fprintf(to, "# HELP %s %s\n# TYPE %s %s\n%s", f.name, f.help, f.name, kind, &samples)
		}
	}
}
