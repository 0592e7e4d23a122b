package main

import (
	"embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

//go:embed pages
var pages embed.FS

// writePage writes a page: its text, drawings, the machine, and the tables.
func (r results) writePage(dir, page string) {
	prose := get(pages.ReadFile("pages/" + page + ".md"))
	parts := []string{strings.TrimSpace(string(prose)) + "\n"}
	var tables []string
	for _, c := range r.Cases {
		if c.Page != page {
			continue
		}
		tables = append(tables, c.markdown())
		if c.Drawing == "" {
			continue
		}
		file := filepath.Join("plots", c.Drawing+".svg")
		must(os.MkdirAll(filepath.Join(dir, "plots"), 0o755))
		replaceFile(filepath.Join(dir, file), c.draw())
		parts = append(parts, fmt.Sprintf("![%s](%s)\n", c.Title, file))
	}
	parts = append(parts, r.machineTable())
	text := strings.Join(append(parts, tables...), "\n")
	replaceFile(filepath.Join(dir, page+".md"), []byte(text))
}

func (r results) machineTable() string {
	lines := [][]string{{"date", r.Date}, {"the run took", fmt.Sprintf("%.0f minutes", r.Minutes)}}
	return "## Machine\n\n" + markdownTable([]string{"", ""}, append(lines, r.Machine...))
}

func (c outcome) markdown() string {
	text := fmt.Sprintf("## %s\n\n%s\n\n%s", c.Title, c.How, markdownTable(c.head(), c.cells()))
	for _, row := range c.Rows {
		if row.Failed != "" {
			text += fmt.Sprintf("\n- %s failed: %s\n", row.Tool, strings.ReplaceAll(row.Failed, "\n", " "))
		}
	}
	return text
}

func markdownTable(head []string, lines [][]string) string {
	rule := []string{"---"}
	for range head[1:] {
		rule = append(rule, "---:")
	}
	var out strings.Builder
	for _, cells := range append([][]string{head, rule}, lines...) {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | "))
	}
	return out.String()
}

// head names the columns. The first metric has its spread, and its ratio to the
// base.
func (c outcome) head() []string {
	head := []string{"", "rounds"}
	for i, m := range c.Metrics {
		head = append(head, strings.TrimSpace(m.Name+" "+m.Unit))
		if i == 0 {
			head = append(head, "p10", "p90")
			if c.Base != "" {
				head = append(head, "ratio to "+c.Base)
			}
		}
	}
	return head
}

func (c outcome) cells() (lines [][]string) {
	for _, row := range c.Rows {
		cells := []string{row.Tool, fmt.Sprint(row.Rounds)}
		for i, m := range c.Metrics {
			v, is := row.Values[m.Name]
			cells = append(cells, number(v.Median, is))
			if i == 0 {
				cells = append(cells, number(v.P10, is), number(v.P90, is))
				if c.Base != "" {
					cells = append(cells, number(row.Ratio, row.Ratio != 0))
				}
			}
		}
		lines = append(lines, cells)
	}
	return lines
}

// number shows three digits, and a dash where there is none.
func number(v float64, is bool) string {
	switch {
	case !is:
		return "-"
	case v == math.Trunc(v) || math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
