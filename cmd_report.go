package main

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

	"golock/locks"
)

// reportCommand is the grammar of golock report.
type reportCommand struct {
	Textfile *word
	Reports  []word `arg:"" optional:"" name:"reports" sep:"none"`
}

var errMissingReport = errors.New("missing the files that golock run --report has written; see golock report --help")

func (c *reportCommand) run(out *printer) int {
	if err := c.convert(out); err != nil {
		return out.exit(err)
	}
	return 0
}

// convert makes the files of --report what Prometheus reads. Nothing is written
// before all of them have been read.
func (c *reportCommand) convert(out *printer) error {
	if len(c.Reports) == 0 {
		return usageError{errMissingReport}
	}
	m := metrics{}
	for _, path := range c.Reports {
		f, err := os.Open(string(path))
		if err != nil {
			return fmt.Errorf("the report cannot be read: %w", err)
		}
		err = m.read(f, func(line int, err error) {
			out.warn(fmt.Sprintf("%s:%d: not a line of --report, passed over: %v", path, line, err))
		})
		f.Close()
		if err != nil {
			return fmt.Errorf("the report cannot be read: %w", err)
		}
	}
	var b bytes.Buffer
	m.write(&b)
	if c.Textfile == nil {
		if _, err := os.Stdout.Write(b.Bytes()); err != nil {
			return outputError{err}
		}
		return nil
	}
	if err := replaceFile(string(*c.Textfile), b.Bytes()); err != nil {
		return fmt.Errorf("the textfile cannot be written: %w", err)
	}
	return nil
}

// read takes in the lines of a report. Of one that it does not understand it
// tells bad and goes on; the last may be one that is still being written.
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

// longestLine is more than a line of --report can have: a command has 2 MiB at
// most, of which JSON can make six times as much.
const longestLine = 16 << 20

var errLongLine = errors.New("longer than 16 MiB")

// readLine reads to the end of a line, and gives it unless it is too long to be
// kept.
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

// replaceFile puts a whole file in the place of another in one step: who reads
// finds the old one or the new one, and after a failure the old one. Until then
// its name does not end in .prom, and node_exporter passes it over.
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
		err = f.Chmod(0o644) // it is read by another user
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
