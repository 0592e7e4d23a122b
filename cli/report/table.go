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
	group, head string
	isText      bool // aligned to the left
	needless    int  // the order in which columns are left out of a narrow table, from 1; 0 keeps the column
	ifAny       bool // left out, before all others, if it has no number but 0
	cell        func(*Row) string
}

// columns are the columns of the table.
func columns() []column {
	number := func(field func(*Row) int) func(*Row) string {
		return func(r *Row) string { return strconv.Itoa(field(r)) }
	}
	return []column{
		{head: "NAME", isText: true, cell: func(r *Row) string { return locks.Printable(r.Name, term.NameLimit) }},
		{head: "STORE", isText: true, needless: 1, cell: func(r *Row) string { return locks.Printable(r.Store, term.NameLimit) }},
		{head: "RUNS", cell: number(func(r *Row) int { return r.Runs })},
		{head: "SKIPPED", cell: number(func(r *Row) int { return r.Skipped })},
		{head: "FAILED", cell: number(func(r *Row) int { return r.Failed })},
		{head: "LOST", ifAny: true, cell: number(func(r *Row) int { return r.Lost })},
		{head: "UNAVAILABLE", ifAny: true, cell: number(func(r *Row) int { return r.Unavailable })},
		{head: "UNLOCKED", ifAny: true, cell: number(func(r *Row) int { return r.Unlocked })},
		{group: "WAITED", head: "MEDIAN", needless: 4, cell: func(r *Row) string { return r.Waited.Median() }},
		{group: "WAITED", head: "P95", needless: 2, cell: func(r *Row) string { return r.Waited.P95() }},
		{group: "WAITED", head: "LONGEST", cell: func(r *Row) string { return r.Waited.Longest() }},
		{group: "RAN", head: "MEDIAN", needless: 5, cell: func(r *Row) string { return r.Ran.Median() }},
		{group: "RAN", head: "P95", needless: 3, cell: func(r *Row) string { return r.Ran.P95() }},
		{group: "RAN", head: "LONGEST", needless: 6, cell: func(r *Row) string { return r.Ran.Longest() }},
		{group: "LAST", head: "ENDED", isText: true, needless: 7, cell: func(r *Row) string { return locks.ClockTime(timeOf(r.LastEnd)) }},
		{group: "LAST", head: "RESULT", isText: true, cell: func(r *Row) string { return r.LastResult }},
	}
}

// timeOf converts seconds since 1970.
func timeOf(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// Table returns the lines of a table for people, or none if there are no runs. To fit into a width
// (0: any) it leaves columns out. The column STORE is there if there are several stores.
func Table(rows []*Row, width int) []string {
	if len(rows) == 0 {
		return nil
	}
	stores := map[string]bool{}
	for _, row := range rows {
		stores[row.Store] = true
	}
	var table []*filled
	for _, c := range columns() {
		if c.head == "STORE" && len(stores) == 1 {
			continue
		}
		f := fill(c, rows)
		if c.head == "UNLOCKED" && f.isZero {
			continue
		}
		table = append(table, f)
	}
	table = fit(table, width)
	lines := make([]string, len(rows)+2)
	group := ""
	for i, f := range table {
		title := ""
		if f.group != group {
			title, group = f.group, f.group
		}
		for n := range lines {
			text, isText := title, true
			if n > 0 {
				text, isText = f.cells[n-1], f.isText
			}
			lines[n] += f.pad(text, isText, i == len(table)-1)
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

// filled is a column with its cells; the first one is the head.
type filled struct {
	column
	cells  []string
	width  int
	isZero bool
}

func fill(c column, rows []*Row) *filled {
	f := &filled{column: c, cells: []string{c.head}, width: max(term.Width(c.head), term.Width(c.group)), isZero: true}
	for _, row := range rows {
		cell := c.cell(row)
		f.cells = append(f.cells, cell)
		f.width = max(f.width, term.Width(cell))
		f.isZero = f.isZero && cell == "0"
	}
	return f
}

const gap = 2 // between two columns

// pad adds blanks to a cell.
func (f *filled) pad(text string, isText, isLast bool) string {
	blanks := strings.Repeat(" ", max(f.width-term.Width(text), 0))
	switch {
	case isText && isLast:
		return text
	case isText:
		return text + blanks + strings.Repeat(" ", gap)
	}
	return blanks + text + strings.Repeat(" ", gap)
}

// fit leaves out columns until the table fits into the width: first those that have no number but 0.
func fit(table []*filled, width int) []*filled {
	for width > 0 && total(table) > width {
		worst := -1
		for i, f := range table {
			if f.isNeedless() && (worst < 0 || f.order() < table[worst].order()) {
				worst = i
			}
		}
		if worst < 0 {
			return table
		}
		table = append(table[:worst:worst], table[worst+1:]...)
	}
	return table
}

func (f *filled) isNeedless() bool { return f.needless > 0 || f.ifAny && f.isZero }

// order says when a needless column is left out; columns of zeros (0) go first.
func (f *filled) order() int { return f.needless }

func total(table []*filled) int {
	sum := -gap
	for _, f := range table {
		sum += f.width + gap
	}
	return sum
}
