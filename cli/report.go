//go:build !lean

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golock/cli/report"
	"golock/cli/report/webpage"
	"golock/cli/term"
	"golock/config"
	"golock/locks"
)

type reportCommand struct {
	Summary    boolFlag     `name:"summary" brief:"" file:"no" help:"Print a table of all locks: how many runs were skipped, failed or lost their slot, how long they waited and ran. The default on a terminal."`
	HTML       textFlag     `name:"html" brief:"" file:"no" placeholder:"FILE" help:"Replace FILE by a page that shows when each run waited and ran, and behind whom, with the table. It needs no other file, no network and no JavaScript. With -, the page goes to standard output."`
	Prometheus boolFlag     `name:"prometheus" brief:"" file:"no" help:"Print metrics for Prometheus. The default if standard output is not a terminal."`
	Textfile   textFlag     `name:"textfile" brief:"" file:"no" placeholder:"FILE" help:"Replace FILE by the metrics, in one step, for node_exporter's textfile collector."`
	Since      durationFlag `name:"since" brief:"" file:"no" placeholder:"D" help:"Count only runs that ended within the last D."`
	Name       textFlag     `name:"name" brief:"" file:"no" placeholder:"NAME" help:"Count only runs of this name. Its longest waits, and what was skipped or failed, follow the table."`
	configFlag
	Reports []textFlag `arg:"" optional:"" name:"reports" sep:"none" placeholder:"FILE" help:"Files that --report has written, in any order. Without FILE the configured report is read: GOLOCK_REPORT, or the key report of the configuration file."`
}

func (*reportCommand) Help() string {
	return `Sums up what golock run --report has written. A file that does not exist yet counts as
empty. Give all files of a host, also rotated ones, to one golock report.

Examples:
  golock report
        a table of the configured report
  golock report --since 1d --html night.html /var/log/golock/*.jsonl
        a page of the last day: why did backup start late, who was skipped most
  * * * * * golock report --textfile /var/lib/prometheus/node-exporter/golock.prom /var/log/golock.jsonl
        a crontab line; operations.md in share/doc/golock describes the metrics`
}

// run sums up the reports. It writes nothing before it has read all.
func (c *reportCommand) run(out *term.Printer) error {
	v, err := resolve(c)
	if err != nil {
		return err
	}
	selected := c.readFilter(v)
	c.refuseContradictions(v)
	if v.Err() != nil {
		return v.Err()
	}
	paths, err := c.paths(v, out)
	if err != nil {
		return err
	}
	sums := &reportSums{summary: report.NewSummary(), metrics: report.NewMetrics()}
	if c.HTML.given() || c.Name.given() {
		sums.page = webpage.New(time.Now())
	}
	for _, path := range paths {
		err := c.read(path, selected, sums, out)
		if err != nil {
			return fmt.Errorf("the report cannot be read: %w", err)
		}
	}
	return c.write(sums, out)
}

// readFilter reads which runs count.
func (c *reportCommand) readFilter(v *config.Values) (selected report.Filter) {
	if c.Name.given() {
		selected.Name = c.Name.text()
		if err := locks.CheckName(selected.Name); err != nil {
			v.Fail("name", "%q: %w", locks.Printable(selected.Name, 80), err)
		}
	}
	if c.Since.given() {
		selected.Since = float64(time.Now().Add(-v.Duration("since")).UnixMicro()) / 1e6
	}
	return selected
}

// refuseContradictions refuses flags that exclude each other, and paths that are no names of files.
func (c *reportCommand) refuseContradictions(v *config.Values) {
	for _, key := range []string{"html", "textfile"} {
		_, err := v.Path(key)
		v.Reject(err)
	}
	switch {
	case c.Textfile.text() == "-":
		v.Fail("textfile", `"-" names no file: --prometheus prints the metrics to standard output`)
	case c.printsPage() && (c.Summary.on() || c.Prometheus.on()):
		v.Fail("html", "%q cannot be combined with --summary or --prometheus: both print to standard output", c.HTML.text())
	case c.Summary.on() && c.Prometheus.on():
		v.Fail("summary", "cannot be combined with --prometheus: both print to standard output")
	case c.Textfile.given() && c.Prometheus.on():
		v.Fail("textfile", "cannot be combined with --prometheus: it replaces standard output")
	case c.Textfile.given() && c.Since.given():
		v.Fail("since", "cannot be combined with --textfile: counters for Prometheus must not fall")
	}
}

// paths returns the files to read.
func (c *reportCommand) paths(v *config.Values, out *term.Printer) ([]string, error) {
	var paths []string
	for _, path := range c.Reports {
		paths = append(paths, path.text())
	}
	if len(paths) > 0 {
		return paths, nil
	}
	warn(out, v) // the settings name the report, so their warnings matter
	path, err := v.Path("report")
	switch {
	case err != nil:
		return nil, err
	case path == "":
		return nil, usageError{errors.New("missing FILE: name the files that golock run --report has written, or set GOLOCK_REPORT; see golock report --help")}
	case standardStream(path) >= 0:
		return nil, usageError{fmt.Errorf("missing FILE: the configured report is %s, which cannot be read", path)}
	}
	return []string{path}, nil
}

// reportSums are what the lines of reports are added to.
type reportSums struct {
	summary *report.Summary
	metrics *report.Metrics
	page    *webpage.Page // nil if neither a page nor the lists of a name are wanted
}

func (s *reportSums) add(line *report.Line) {
	s.summary.Add(line)
	s.metrics.Add(line)
	if s.page != nil {
		s.page.Add(line)
	}
}

// read adds the lines of a file. A file that does not exist yet counts as empty if its directory exists:
// the first run makes it.
func (c *reportCommand) read(path string, selected report.Filter, sums *reportSums, out *term.Printer) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && isDirectory(filepath.Dir(path)) {
		if !c.Textfile.given() {
			out.Say(path + " does not exist yet and counts as empty")
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return report.Read(f, selected, sums.add, func(line int, err error) {
		out.Warn(fmt.Sprintf("%s:%d: not a line of --report, skipped: %v", path, line, err))
	})
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// write writes what the flags ask for. Without such a flag it writes the table for a terminal, and metrics
// for a program.
func (c *reportCommand) write(sums *reportSums, out *term.Printer) error {
	width := term.ScreenOf(1).Columns
	wantsTable, wantsMetrics := c.Summary.on(), c.Prometheus.on()
	if !wantsTable && !wantsMetrics && !c.HTML.given() && !c.Textfile.given() {
		wantsTable = width > 0
		wantsMetrics = !wantsTable
	}
	var metrics bytes.Buffer
	_ = sums.metrics.Write(&metrics) // a buffer takes everything
	if c.Textfile.given() {
		err := replaceFile(c.Textfile.text(), metrics.Bytes(), isReadByOthers)
		if err != nil {
			return fmt.Errorf("the textfile cannot be written: %w", err)
		}
	}
	if c.HTML.given() {
		err := c.writePage(sums)
		if err != nil {
			return fmt.Errorf("the page cannot be written: %w", err)
		}
	}
	if wantsMetrics {
		return printOut(metrics.String())
	}
	if !wantsTable {
		return nil
	}
	lines := report.Table(sums.summary.Rows(), width)
	if len(lines) == 0 {
		out.Say("the report has no run to show")
		return nil
	}
	if c.Name.given() {
		lines = append(lines, sums.page.Lists(width)...)
	}
	return printOut(strings.Join(lines, "\n") + "\n")
}

// printsPage reports whether the page goes to standard output.
func (c *reportCommand) printsPage() bool {
	path := c.HTML.text()
	return path == "-" || standardStream(path) == 1
}

func (c *reportCommand) writePage(sums *reportSums) error {
	var html bytes.Buffer
	err := sums.page.Write(&html, sums.summary.Rows())
	if err != nil {
		return err
	}
	if c.printsPage() {
		return printOut(html.String())
	}
	return replaceFile(c.HTML.text(), html.Bytes(), isReadByUmask)
}

// These constants say who may read a file that golock report makes (replaceFile).
const (
	isReadByOthers = true  // everybody may read metrics: node_exporter is another user
	isReadByUmask  = false // the umask decides: a page shows the commands of runs
)

// replaceFile replaces a file in one step. The temporary file does not end in .prom, so that
// node_exporter ignores it. Only a file or a link is replaced: root could replace /dev/stdout.
func replaceFile(path string, content []byte, forOthers bool) error {
	info, err := os.Lstat(path)
	isSpecial := err == nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0
	if isSpecial || standardStream(path) >= 0 {
		return fmt.Errorf("%s is not a regular file", path)
	}
	temporary := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d.tmp", filepath.Base(path), rand.Uint64()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && forOthers {
		err = f.Chmod(0o644)
	}
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}
