package report

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// longestLine is more than a line of --report can have: a command has at most
// 2 MiB, and JSON makes it at most six times as long.
const longestLine = 16 << 20

// Filter selects lines.
type Filter struct {
	Name  string  // "" selects all names
	Since float64 // selects runs that ended at this time or later, in seconds since 1970; 0 selects all
}

func (f Filter) selects(l *Line) bool {
	return (f.Name == "" || f.Name == l.Name) && (f.Since == 0 || l.End() >= f.Since)
}

// Read gives the selected lines of a report to add, in the order of the file. It gives a run with several
// names once for each name. It gives the number of a malformed line to bad and goes on: the last line of
// a report may be incomplete.
func Read(from io.Reader, selected Filter, add func(*Line), bad func(number int, err error)) error {
	lines := bufio.NewReader(from)
	for n := 1; ; n++ {
		text, tooLong, err := readLine(lines)
		if err != nil && err != io.EOF {
			return err
		}
		var line *Line
		var problem error
		if tooLong {
			problem = errors.New("longer than 16 MiB")
		} else if len(bytes.TrimSpace(text)) > 0 {
			line, problem = parse(text)
		}
		if problem != nil {
			bad(n, problem)
		}
		if line != nil {
			for _, one := range line.perName() {
				if selected.selects(one) {
					add(one)
				}
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine reads a line. It drops the rest of a line that is too long. The error is io.EOF after the last
// line.
func readLine(from *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := from.ReadSlice('\n')
		tooLong = tooLong || len(line)+len(part) > longestLine
		if !tooLong {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, tooLong, err
		}
	}
}
