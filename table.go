package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// screen is the size of a terminal in characters; zero: it is none.
type screen struct{ columns, rows int }

// screenOf asks for the size of the terminal behind a descriptor. One that does
// not know its size counts as one of 80 by 24.
func screenOf(fd int) screen {
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return screen{}
	}
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return screen{80, 24}
	}
	return screen{int(size.Col), int(size.Row)}
}

// What a table shows of a name and a command where nothing else limits it.
const (
	nameLimit    = 40
	userLimit    = 40
	commandLimit = 60
)

// column is one of a table's: its head and a cell for each entry.
type column struct {
	head  string
	cells []string
	width int
}

func (c *column) add(cell string) { c.cells = append(c.cells, cell) }

// tableOf gives the lines of a table, none if there are no entries. With a width
// no line is longer than that: names are shortened first, then columns are left
// out that can be missed, and the command gets what is left.
func tableOf(shown []shownEntry, width int) []string {
	if len(shown) == 0 {
		return nil
	}
	columns := columnsOf(shown, width > 0)
	for i := range columns {
		columns[i].measure()
	}
	if width > 0 {
		columns = fit(columns, width)
	}
	lines := make([]string, 0, len(shown)+1)
	for row := -1; row < len(shown); row++ {
		var b strings.Builder
		for i, c := range columns {
			cell := c.head
			if row >= 0 {
				cell = c.cells[row]
			}
			cell = cut(cell, c.width)
			b.WriteString(cell)
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", c.width-columnsWide(cell)+gap))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if width > 0 {
			line = cut(line, width)
		}
		lines = append(lines, line)
	}
	return lines
}

// columnsOf fills the columns. A column that says nothing of any entry, when it
// would end, is left out.
func columnsOf(shown []shownEntry, brief bool) []column {
	columns := []column{{head: "NAME"}, {head: "STATE"}, {head: "SLOT"}, {head: "MAX"}, {head: "PID"}, {head: "USER"}, {head: "SINCE"}, {head: "UNTIL"}, {head: "COMMAND"}}
	limited := false
	longest := commandLimit
	if brief {
		longest = 1000
	}
	for _, e := range shown {
		until := untilText(e)
		limited = limited || until != ""
		for i, cell := range []string{
			locks.Printable(e.Name, nameLimit), stateText(e), slotCell(e), limitText(e.Max), pidText(e.PID), userText(e),
			sinceText(e.Since, brief), until, locks.Printable(strings.Join(e.Command, " "), longest),
		} {
			columns[i].add(cell)
		}
	}
	if !limited {
		columns = append(columns[:7], columns[8:]...)
	}
	return columns
}

func stateText(e shownEntry) string {
	state := string(e.State)
	if e.State == locks.Waiting {
		state = fmt.Sprintf("waiting %d", e.Position)
	}
	switch {
	case e.Orphaned:
		return "orphaned"
	case e.ended:
		return "held until " + sinceText(e.HeldTill, true)
	case e.leaving:
		return state + ", told to go"
	}
	return state
}

func slotCell(e shownEntry) string {
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

// userText names the host too where it may be another than this one.
func userText(e shownEntry) string {
	switch {
	case e.Expires != nil && e.Host != "":
		return locks.Printable(e.User+"@"+e.Host, userLimit)
	case e.User == "":
		return "?"
	}
	return locks.Printable(e.User, userLimit)
}

// sinceText is a moment; brief without what goes without saying.
func sinceText(text string, brief bool) string {
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

// untilText is how long an entry lasts: until a moment whatever happens, or for
// so long without a sign of life.
func untilText(e shownEntry) string {
	switch {
	case e.ended: // has been said
		return ""
	case e.HeldTill != "":
		return sinceText(e.HeldTill, true)
	case e.Expires != nil && *e.Expires > 0:
		return (time.Duration(*e.Expires) * time.Millisecond).Truncate(time.Second).String()
	case e.Expires != nil:
		return "0s"
	}
	return ""
}

const (
	gap          = 2  // between two columns
	leastCommand = 16 // of a command to be worth showing
	leastName    = 12
)

// fit makes the columns fit a width.
func fit(columns []column, width int) []column {
	used := func() int {
		sum := 0
		for _, c := range columns[:len(columns)-1] {
			sum += c.width + gap
		}
		return sum
	}
	command := min(columns[len(columns)-1].width, leastCommand)
	if over := used() + command - width; over > 0 {
		columns[0].width = max(columns[0].width-over, min(columns[0].width, leastName))
	}
	for _, head := range []string{"MAX", "USER", "UNTIL", "SINCE", "SLOT", "PID"} {
		if used()+command <= width {
			break
		}
		for i, c := range columns {
			if c.head == head {
				columns = append(columns[:i], columns[i+1:]...)
				break
			}
		}
	}
	last := &columns[len(columns)-1]
	last.width = min(last.width, max(width-used(), 1))
	return columns
}

func (c *column) measure() {
	c.width = columnsWide(c.head)
	for _, cell := range c.cells {
		c.width = max(c.width, columnsWide(cell))
	}
}

// columnsWide is how many columns of a terminal a text takes.
func columnsWide(text string) (n int) {
	for _, r := range text {
		n += runeWide(r)
	}
	return n
}

// runeWide is 2 for the wide characters of East Asia and pictures (Unicode
// Standard Annex 11, in rough), 0 for what is put onto the one before it.
func runeWide(r rune) int {
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

// cut shortens a text to so many columns; what was cut shows as "…".
func cut(text string, width int) string {
	if columnsWide(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		if n+runeWide(r) > width-1 {
			return text[:i] + "…"
		}
		n += runeWide(r)
	}
	return text
}
