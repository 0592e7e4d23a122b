package report

import (
	"strconv"
	"strings"
	"time"

	"golock/cli/term"
	"golock/locks"
)

// column is a column of the table.
type column struct {
	group, head string // the two lines of the heading; columns beside each other can have a group in common
	isText      bool   // the cells are aligned to the left, otherwise to the right
	dropRank    int    // the order in which columns are left out of a narrow table, from 1; 0 keeps the column
	dropIfZero  bool   // a narrow table leaves the column out, before all others, if all its numbers are 0
	cell        func(*Row) string
}

// columns are the columns of the table.
func columns() []column {
	number := func(field func(*Row) int) func(*Row) string {
		return func(r *Row) string { return strconv.Itoa(field(r)) }
	}
	return []column{
		{head: "NAME", isText: true, cell: func(r *Row) string { return locks.Printable(r.Name, term.NameLimit) }},
		{head: "STORE", isText: true, dropRank: 1, cell: func(r *Row) string { return locks.Printable(r.Store, term.NameLimit) }},
		{head: "RUNS", cell: number(func(r *Row) int { return r.Runs })},
		{head: "SKIPPED", cell: number(func(r *Row) int { return r.Skipped })},
		{head: "FAILED", cell: number(func(r *Row) int { return r.Failed })},
		{head: "LOST", dropIfZero: true, cell: number(func(r *Row) int { return r.Lost })},
		{head: "UNAVAILABLE", dropIfZero: true, cell: number(func(r *Row) int { return r.Unavailable })},
		{head: "UNLOCKED", dropIfZero: true, cell: number(func(r *Row) int { return r.Unlocked })},
		{group: "WAITED", head: "MEDIAN", dropRank: 4, cell: func(r *Row) string { return r.Waited.Median() }},
		{group: "WAITED", head: "P95", dropRank: 2, cell: func(r *Row) string { return r.Waited.P95() }},
		{group: "WAITED", head: "LONGEST", cell: func(r *Row) string { return r.Waited.Longest() }},
		{group: "RAN", head: "MEDIAN", dropRank: 5, cell: func(r *Row) string { return r.Ran.Median() }},
		{group: "RAN", head: "P95", dropRank: 3, cell: func(r *Row) string { return r.Ran.P95() }},
		{group: "RAN", head: "LONGEST", dropRank: 6, cell: func(r *Row) string { return r.Ran.Longest() }},
		{group: "LAST", head: "ENDED", isText: true, dropRank: 7, cell: func(r *Row) string { return locks.ClockTime(timeOf(r.LastEnd)) }},
		{group: "LAST", head: "RESULT", isText: true, cell: func(r *Row) string { return r.LastResult }},
	}
}

// timeOf converts seconds since 1970.
func timeOf(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// Table returns the lines of a table for people, or none if there are no runs. To fit into a width it
// leaves columns out; a width of 0 has no limit. Only a table of several stores has the column STORE.
func Table(rows []*Row, width int) []string {
	if len(rows) == 0 {
		return nil
	}
	stores := map[string]bool{}
	for _, row := range rows {
		stores[row.Store] = true
	}
	table := fit(fillColumns(rows, len(stores) > 1), width)
	lines := make([]string, len(rows)+2) // the first line has the groups of columns, the second one the heads
	group := ""
	for i, f := range table {
		isLast := i == len(table)-1
		title := ""
		if f.group != group {
			title, group = f.group, f.group
		}
		lines[0] += f.pad(title, true, isLast)
		for n, cell := range f.cells {
			lines[n+1] += f.pad(cell, f.isText, isLast)
		}
	}
	for n := range lines {
		lines[n] = strings.TrimRight(lines[n], " ")
		if width > 0 {
			lines[n] = term.Cut(lines[n], width)
		}
	}
	return lines
}

// fillColumns returns the columns that a table of the rows has without a limit of its width.
func fillColumns(rows []*Row, hasStores bool) (table []*filledColumn) {
	for _, c := range columns() {
		if c.head == "STORE" && !hasStores {
			continue
		}
		f := fillColumn(c, rows)
		if c.head == "UNLOCKED" && f.isZero {
			continue
		}
		table = append(table, f)
	}
	return table
}

// filledColumn is a column with its cells. The first cell is the head.
type filledColumn struct {
	column
	cells  []string
	width  int
	isZero bool // all cells but the head are 0
}

func fillColumn(c column, rows []*Row) *filledColumn {
	f := &filledColumn{column: c, cells: []string{c.head}, width: max(term.Width(c.head), term.Width(c.group)), isZero: true}
	for _, row := range rows {
		cell := c.cell(row)
		f.cells = append(f.cells, cell)
		f.width = max(f.width, term.Width(cell))
		f.isZero = f.isZero && cell == "0"
	}
	return f
}

const gap = 2 // the blanks between two columns

// pad adds blanks to a cell. A text that ends the line needs none.
func (f *filledColumn) pad(text string, isText, isLast bool) string {
	blanks := strings.Repeat(" ", max(f.width-term.Width(text), 0))
	switch {
	case isText && isLast:
		return text
	case isText:
		return text + blanks + strings.Repeat(" ", gap)
	}
	return blanks + text + strings.Repeat(" ", gap)
}

// fit leaves out columns until the table fits into the width. Columns of zeros, whose rank is 0, go first.
func fit(table []*filledColumn, width int) []*filledColumn {
	for width > 0 && totalWidth(table) > width {
		next := -1 // the column that is left out next
		for i, f := range table {
			if f.mayBeLeftOut() && (next < 0 || f.dropRank < table[next].dropRank) {
				next = i
			}
		}
		if next < 0 {
			return table
		}
		table = append(table[:next:next], table[next+1:]...)
	}
	return table
}

func (f *filledColumn) mayBeLeftOut() bool { return f.dropRank > 0 || f.dropIfZero && f.isZero }

func totalWidth(table []*filledColumn) int {
	sum := -gap
	for _, f := range table {
		sum += f.width + gap
	}
	return sum
}
