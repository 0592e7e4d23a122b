package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golock/cli/term"
	"golock/locks"
)

type reportCommand struct {
	Textfile textFlag   `name:"textfile" placeholder:"FILE" help:"Replace FILE, in one step, instead of printing: for node_exporter's textfile collector."`
	Reports  []textFlag `arg:"" optional:"" name:"reports" sep:"none" help:"Files that --report has written, in any order."`
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

// read adds the lines of a report. It calls bad for a malformed line and goes on:
// the last one may be incomplete.
func (m metrics) read(from io.Reader, bad func(line int, err error)) error {
	lines := bufio.NewReader(from)
	for n := 1; ; n++ {
		text, err := readLine(lines)
		if err == errLongLine {
			bad(n, err)
			continue
		}
		if len(bytes.TrimSpace(text)) > 0 {
			var line reportLine
			if problem := line.parse(text); problem != nil {
				bad(n, problem)
			} else {
				m.add(&line)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// longestLine is more than a line of --report can have: a command has at most
// 2 MiB, and JSON makes it at most six times as long.
const longestLine = 16 << 20

var errLongLine = errors.New("longer than 16 MiB")

// readLine reads a line, and drops one that is too long.
func readLine(from *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := from.ReadSlice('\n')
		if long = long || len(line)+len(part) > longestLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case long && err == nil:
			return nil, errLongLine
		default:
			return line, err
		}
	}
}

func (l *reportLine) parse(text []byte) error {
	if err := json.Unmarshal(text, l); err != nil {
		return err
	}
	if locks.CheckName(l.Name) != nil || l.Outcome == "" {
		return errors.New("no name or no outcome")
	}
	_, err := l.end()
	return err
}

// end is when the run ended.
func (l *reportLine) end() (float64, error) {
	since, err := time.Parse(time.RFC3339Nano, l.Since)
	if err != nil {
		return 0, fmt.Errorf("since: %w", err)
	}
	return float64(since.UnixMicro())/1e6 + l.Waited + l.Ran, nil
}

// replaceFile replaces a file in one step. The temporary file does not end in
// .prom, so that node_exporter ignores it.
func replaceFile(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644) // another user reads it
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
