package webpage

import (
	"strings"

	"golock/cli/term"
)

// Lists returns the lists of the page as lines for a terminal: the longest waits, and the runs that were
// skipped, failed or lost. A line is cut to the width; a width of 0 has no limit.
func (p *Page) Lists(width int) (lines []string) {
	p.arrange()
	add := func(title string, all []listedRun) {
		if len(all) > 0 {
			lines = append(lines, "", title)
			lines = append(lines, listLines(all, width)...)
		}
	}
	troubles, _ := p.troubles()
	add("Longest waits:", p.longestWaits())
	add("Skipped, failed, lost:", troubles)
	return lines
}

// listLines returns a table of runs. The column with the longest texts is the last one.
func listLines(all []listedRun, width int) (lines []string) {
	table := [][]string{{"SINCE", "HOST", "WAITED", "RESULT", "BEHIND"}}
	for _, l := range all {
		table = append(table, []string{l.Begin, l.Host, l.Waited, l.Result, l.Behind})
	}
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = max(widths[i], term.Width(cell))
		}
	}
	for _, cells := range table {
		line := ""
		for i, cell := range cells {
			line += cell + strings.Repeat(" ", widths[i]-term.Width(cell)+2)
		}
		line = strings.TrimRight(line, " ")
		if width > 0 {
			line = term.Cut(line, width)
		}
		lines = append(lines, line)
	}
	return lines
}
