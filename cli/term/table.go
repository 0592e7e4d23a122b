package term

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golock/locks"
)

// The longest cells.
const (
	NameLimit    = 40
	userLimit    = 40
	commandLimit = 60
)

// column is a head and a cell for each entry.
type column struct {
	head  string
	cells []string
	width int
}

// Table gives the lines of a table, none without entries. To fit into a width it
// shortens names first, then leaves columns out; the command gets the rest.
func Table(shown []Row, width int) []string {
	if len(shown) == 0 {
		return nil
	}
	columns := fillColumns(shown, width > 0)
	if width > 0 {
		columns = fitColumns(columns, width)
	}
	lines := make([]string, 0, len(shown)+1)
	for row := -1; row < len(shown); row++ {
		var b strings.Builder
		for i, c := range columns {
			cell := c.head
			if row >= 0 {
				cell = c.cells[row]
			}
			cell = Cut(cell, c.width)
			b.WriteString(cell)
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", c.width-Width(cell)+gap))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if width > 0 {
			line = Cut(line, width)
		}
		lines = append(lines, line)
	}
	return lines
}

// fillColumns leaves out columns in which no entry has something to say.
func fillColumns(shown []Row, brief bool) []column {
	var columns []column
	for _, head := range []string{"NAME", "STATE", "POS", "SLOT", "MAX", "WEIGHT", "PRIORITY", "PID", "USER", "SINCE", "AGE", "UNTIL", "COMMAND"} {
		columns = append(columns, column{head: head, width: len(head)})
	}
	telling := map[string]bool{"COMMAND": true}
	longest := commandLimit
	if brief {
		longest = 1000
	}
	for _, e := range shown {
		position := ""
		if e.State == locks.Waiting {
			position = strconv.Itoa(e.Position)
		}
		for i, cell := range []string{
			locks.Printable(e.Name, NameLimit), stateText(e), position, slotCell(e), limitText(e.Max), unlessUsual(e.Weight, 1), unlessUsual(e.Priority, 0),
			pidText(e.PID), userText(e), momentText(e.Since, brief), ageText(e.Since), endText(e), locks.Printable(strings.Join(e.Command, " "), longest),
		} {
			columns[i].cells = append(columns[i].cells, cell)
			columns[i].width = max(columns[i].width, Width(cell))
			if cell != "" {
				telling[columns[i].head] = true
			}
		}
	}
	return slices.DeleteFunc(columns, func(c column) bool { return !telling[c.head] })
}

func unlessUsual(n, usual int) string {
	if n == usual {
		return ""
	}
	return strconv.Itoa(n)
}

// ageText is how long ago a moment was.
func ageText(text string) string {
	since, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return "?"
	}
	return spanText(time.Since(since))
}

func stateText(e Row) string {
	state := string(e.State)
	switch {
	case e.Orphaned:
		return "orphaned"
	case e.ended:
		return "held until " + momentText(e.HeldTill, true)
	case e.leaving:
		return state + ", evicted"
	}
	return state
}

func slotCell(e Row) string {
	if e.State == locks.Waiting || len(e.Slots) == 0 {
		return "-"
	}
	return slotText(e.Slots)
}

func limitText(limit int) string {
	switch {
	case limit == 0:
		return "shared"
	case limit < 0: // a plain lock may not tell
		return "?"
	}
	return strconv.Itoa(limit)
}

func pidText(pid int) string {
	if pid <= 0 {
		return "?"
	}
	return strconv.Itoa(pid)
}

// userText names the host too on a store of several hosts.
func userText(e Row) string {
	switch {
	case e.Expires != nil && e.Host != "":
		return locks.Printable(e.User+"@"+e.Host, userLimit)
	case e.User == "":
		return "?"
	}
	return locks.Printable(e.User, userLimit)
}

// momentText is a moment; brief: without the date if that is today.
func momentText(text string, brief bool) string {
	since, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return "?"
	}
	since = since.Local()
	if brief && since.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
		return since.Format(time.TimeOnly)
	}
	return since.Format(time.DateTime)
}

// endText is when an entry ends: the end of its hold, or the rest of its lease.
func endText(e Row) string {
	switch {
	case e.ended: // the state says it
		return ""
	case e.HeldTill != "":
		return momentText(e.HeldTill, true)
	case e.Expires != nil && *e.Expires > 0:
		return (time.Duration(*e.Expires) * time.Millisecond).Truncate(time.Second).String()
	case e.Expires != nil:
		return "0s"
	}
	return ""
}

const (
	gap          = 2  // between two columns
	commandLeast = 16 // of a command to be worth showing
	nameLeast    = 12
)

// fitColumns makes the columns fit a width.
func fitColumns(columns []column, width int) []column {
	used := func() int {
		sum := 0
		for _, c := range columns[:len(columns)-1] {
			sum += c.width + gap
		}
		return sum
	}
	command := min(columns[len(columns)-1].width, commandLeast)
	if over := used() + command - width; over > 0 {
		columns[0].width = max(columns[0].width-over, min(columns[0].width, nameLeast))
	}
	for _, head := range []string{"PRIORITY", "WEIGHT", "MAX", "USER", "UNTIL", "SINCE", "AGE", "SLOT", "POS", "PID"} {
		if used()+command <= width {
			break
		}
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.head == head })
	}
	last := &columns[len(columns)-1]
	last.width = min(last.width, max(width-used(), 1))
	return columns
}

// Width is the number of columns that a text takes on a terminal.
func Width(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is 2 for wide characters of East Asia and pictures (roughly Unicode
// Standard Annex 11), 0 for combining ones.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf && r != 0x303f, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Cut shortens a text to so many columns, with "…" at the end.
func Cut(text string, width int) string {
	if Width(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		if n+runeWidth(r) > width-1 {
			return text[:i] + "…"
		}
		n += runeWidth(r)
	}
	return text
}
