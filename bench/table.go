package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// section is one measurement as it is printed.
type section struct {
	title string
	how   string   // a paragraph: what was done
	head  []string // nil: no table, only text
	rows  [][]string
	notes []string
}

// text is the form for a terminal.
func text(s section) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n\n", s.title, strings.Repeat("-", utf8.RuneCountInString(s.title)))
	width := make([]int, len(s.head))
	for _, row := range append([][]string{s.head}, s.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	lines := s.rows
	if strings.Join(s.head, "") != "" {
		lines = append([][]string{s.head}, lines...)
	}
	for _, row := range lines {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 || len(s.head) == 2 {
				line += cell + pad + "   "
			} else {
				line += pad + cell + "   "
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if s.head == nil {
		out.WriteString(s.how + "\n")
	}
	for _, note := range s.notes {
		fmt.Fprintf(&out, "  %s\n", note)
	}
	return out.String()
}

// markdown is the form for the page.
func markdown(s section) string {
	var out strings.Builder
	if s.title != "" {
		fmt.Fprintf(&out, "## %s\n\n", s.title)
	}
	if s.how != "" {
		fmt.Fprintf(&out, "%s\n\n", s.how)
	}
	var lines [][]string
	if s.head != nil {
		rule := []string{"---"}
		for range s.head[1:] {
			if len(s.head) == 2 {
				rule = append(rule, "---")
			} else {
				rule = append(rule, "---:")
			}
		}
		lines = append([][]string{s.head, rule}, s.rows...)
	}
	for _, row := range lines {
		fmt.Fprintf(&out, "| %s |\n", strings.ReplaceAll(strings.Join(row, " | "), "\n", " "))
	}
	if s.notes != nil && lines != nil {
		out.WriteString("\n")
	}
	for _, note := range s.notes {
		fmt.Fprintf(&out, "- %s\n", note)
	}
	return out.String()
}

// The forms of numbers in tables.

func ms(v float64) string    { return fmt.Sprintf("%.2f", v) }
func mib(kib float64) string { return fmt.Sprintf("%.1f", kib/1024) }
func ratio(v float64) string { return fmt.Sprintf("%.2fx", v) }
func count[T int | int64](v T) string {
	return fmt.Sprintf("%d", v)
}
