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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
		if err == nil {
			err = m.read(f, func(line int, err error) {
				out.Warn(fmt.Sprintf("%s:%d: not a line of --report, skipped: %v", path.text(), line, err))
			})
			f.Close()
		}
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
		if tooLong {
			bad(n, errors.New("longer than 16 MiB"))
		} else if len(bytes.TrimSpace(text)) > 0 {
			if problem := m.add(text); problem != nil {
				bad(n, problem)
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
		tooLong = tooLong || len(line)+len(part) > longestLine
		if !tooLong {
			line = append(line, part...)
		}
	}
	return line, tooLong, err
}

// replaceFile replaces a file in one step. The temporary file does not end in
// .prom, so that node_exporter ignores it.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644) // another user reads the file
	}
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// series is what a metric counts for the same labels. The scraper adds the host to them.
type series struct{ metric, labels string }

type metrics map[series]float64

// metricHelp names all metrics, in the order in which they are written.
var metricHelp = [][2]string{
	{"golock_runs_total", "Runs that asked for a slot, by outcome."},
	{"golock_failures_total", "Runs that ended with an exit code other than 0."},
	{"golock_waited_seconds_total", "Time spent waiting for a slot, or until the waiting was given up."},
	{"golock_ran_seconds_total", "Time for which commands ran."},
	{"golock_last_attempt_timestamp_seconds", "End of the last run that asked for a slot, whatever its outcome."},
	{"golock_last_attempt_exit_code", "Exit code of the last run that asked for a slot."},
	{"golock_last_run_timestamp_seconds", "End of the last run whose command was started."},
	{"golock_last_run_waited_seconds", "Time that the last run whose command was started waited for its slot."},
	{"golock_last_run_duration_seconds", "Time for which the last command ran."},
	{"golock_last_run_exit_code", "Exit code of the last run whose command was started."},
	{"golock_last_success_timestamp_seconds", "End of the last run whose command was started and whose exit code was 0."},
}

// add counts the run of a line.
func (m metrics) add(text []byte) error {
	var line reportLine
	err := json.Unmarshal(text, &line)
	switch {
	case err != nil:
		return err
	case locks.CheckName(line.Name) != nil || line.Outcome == "" || line.Since.IsZero():
		return errors.New("no name, outcome or since")
	}
	code := float64(line.ExitCode)
	lock := fmt.Sprintf(`name="%s",store="%s"`, escaped(line.Name), escaped(line.Store))
	m[series{"golock_runs_total", fmt.Sprintf(`%s,outcome="%s"`, lock, escaped(line.Outcome))}]++
	m[series{"golock_failures_total", lock}] += min(code, 1)
	m[series{"golock_waited_seconds_total", lock}] += line.Waited
	m[series{"golock_ran_seconds_total", lock}] += line.Ran

	end := float64(line.Since.UnixMicro())/1e6 + line.Waited + line.Ran // in seconds since 1970
	m.setLast("golock_last_attempt", lock, map[string]float64{"_timestamp_seconds": end, "_exit_code": code})
	if line.Ran > 0 {
		m.setLast("golock_last_run", lock, map[string]float64{
			"_timestamp_seconds": end, "_waited_seconds": line.Waited, "_duration_seconds": line.Ran, "_exit_code": code,
		})
	}
	if line.Ran > 0 && line.ExitCode == 0 {
		m.setLast("golock_last_success", lock, map[string]float64{"_timestamp_seconds": end})
	}
	return nil
}

// setLast sets what is told of the last run, unless that of a later one is set.
func (m metrics) setLast(prefix, lock string, values map[string]float64) {
	const timestamp = "_timestamp_seconds"
	if end, ok := m[series{prefix + timestamp, lock}]; ok && values[timestamp] < end {
		return
	}
	for name, value := range values {
		m[series{prefix + name, lock}] = value
	}
}

// escaped gives the value of a label.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\ufffd"))
}

// write writes Prometheus' text format, version 0.0.4, without timestamps.
func (m metrics) write(to io.Writer) {
	all := slices.SortedFunc(maps.Keys(m), func(a, b series) int { return cmp.Compare(a.labels, b.labels) })
	for _, metric := range metricHelp {
		name, kind := metric[0], "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		}
		head := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, metric[1], name, kind)
		for _, s := range all {
			if s.metric == name {
				fmt.Fprintf(to, "%s%s{%s} %s\n", head, name, s.labels, strconv.FormatFloat(m[s], 'f', -1, 64))
				head = ""
			}
		}
	}
}
