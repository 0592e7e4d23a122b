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

// Read gives the selected lines of a report to add, in the order of the file. A run with several names has a
// line for each of them. It gives a malformed
// line to bad and goes on: the last one may be incomplete.
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
			for _, one := range line.each() {
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
