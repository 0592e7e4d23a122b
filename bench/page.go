package main

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.md
var prose string

// page is the text, the machine, and a table for each question. Cases with the
// same title share a table.
func (r results) page() string {
	parts := []string{prose, r.machineList()}
	for cases := r.Cases; len(cases) > 0; {
		n := 1
		for n < len(cases) && cases[n].Title == cases[0].Title {
			n++
		}
		parts = append(parts, section(cases[:n]))
		cases = cases[n:]
	}
	return strings.Join(parts, "\n")
}

func (r results) machineList() string {
	text := "## Machine\n\n- date: " + r.Date + "\n"
	for _, fact := range r.Machine {
		text += fmt.Sprintf("- %s: %s\n", fact[0], fact[1])
	}
	return text
}

// section is the table of one question.
func section(cases []outcome) string {
	head, how := []string{""}, []string{}
	var tools []string
	failed := ""
	for _, c := range cases {
		if c.How != "" {
			how = append(how, c.How)
		}
		head = append(head, c.head()...)
		for _, row := range c.Rows {
			if len(row.Values) > 0 && !slices.Contains(tools, row.Tool) {
				tools = append(tools, row.Tool)
			}
			if row.Failed != "" {
				_, why, isCommand := strings.Cut(row.Failed, "] ") // what was started, with its paths
				if !isCommand {
					why = row.Failed
				}
				failed += "\n" + wrapped("- "+row.Tool+" failed: "+why)
			}
		}
	}
	text := fmt.Sprintf("## %s\n\n%s\n%s", cases[0].Title, wrapped(strings.Join(how, " ")), line(head))
	text += "|---|" + strings.Repeat("---:|", len(head)-1) + "\n"
	for _, tool := range tools {
		cells := []string{tool}
		for _, c := range cases {
			cells = append(cells, c.cells(tool)...)
		}
		text += line(cells)
	}
	return text + failed
}

// wrapped is a paragraph in lines of at most 100 columns.
func wrapped(text string) string {
	const columns = 100
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > columns:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String() + "\n"
}

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

// shown returns the metrics on the page: in a table of several cases only the first
// metric of each case.
func (c outcome) shown() []metric {
	if c.Column != "" {
		return c.Metrics[:1]
	}
	return c.Metrics
}

func (c outcome) head() (head []string) {
	for i, m := range c.shown() {
		name := m.Name
		if c.Column != "" {
			name = c.Column
		}
		if m.Unit != "" {
			name += ", " + m.Unit
		}
		if c.Column == "" && c.Base != "" && i == 0 {
			name += " (ratio to " + c.Base + ")"
		}
		head = append(head, name)
	}
	return head
}

// cells are a tool's medians; the first has the ratio to the base behind it.
func (c outcome) cells(tool string) (cells []string) {
	var row rowJSON
	if i := slices.IndexFunc(c.Rows, func(r rowJSON) bool { return r.Tool == tool }); i >= 0 {
		row = c.Rows[i]
	}
	for i, m := range c.shown() {
		v, is := row.Values[m.Name]
		cell := "-"
		if is {
			cell = number(v.Median)
		}
		if i == 0 && row.Ratio != 0 {
			cell += " (" + number(row.Ratio) + ")"
		}
		cells = append(cells, cell)
	}
	return cells
}

// number shows three digits.
func number(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
