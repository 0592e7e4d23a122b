package term

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golock/internal/passwd"
	"golock/locks"
)

// Row is an entry in JSON output. Programs rely on the names of its members.
type Row struct {
	Name     string      `json:"name"`
	Note     string      `json:"note"`
	ID       string      `json:"id"`
	State    locks.State `json:"state"`
	Slots    []int       `json:"slots"`
	Position int         `json:"position"`
	Weight   int         `json:"weight"`
	Max      int         `json:"max"`
	Priority int         `json:"priority"`
	Host     string      `json:"host"`
	PID      int         `json:"pid"`
	User     string      `json:"user"`
	Command  []string    `json:"command"`
	Since    string      `json:"since"`
	Fence    int64       `json:"fence"`
	Orphaned bool        `json:"orphaned"`
	WaitsFor string      `json:"waits_for,omitempty"`     // only of a run that holds and waits for another of its names
	Unkept   bool        `json:"no_process,omitempty"`    // only of a slot that acquire --for none has taken
	HeldTill string      `json:"held_until,omitempty"`    // only for a hold
	Expires  *int64      `json:"expires_in_ms,omitempty"` // only on stores with leases
}

// UserName returns the name of a user, or the ID if the user has no name.
func UserName(uid int) string {
	name := passwd.Name(uid)
	if name == "" {
		return strconv.Itoa(uid)
	}
	return name
}

// users caches the names of users by ID, because each look-up reads the password database.
type users map[int]string

// of returns the name of the user of an entry, or "" if the user is not known.
func (u users) of(e locks.Entry) string {
	if e.User != "" || e.UID < 0 {
		return e.User
	}
	name, known := u[e.UID]
	if !known {
		name = UserName(e.UID)
		u[e.UID] = name
	}
	return name
}

// pieceSize is the number of bytes that JSONRows collects in a piece.
const pieceSize = 32 << 10

// JSONRows returns the text of the array of all rows in pieces, so that a long listing is never in
// memory as a whole.
func JSONRows(entries []locks.Entry) iter.Seq[string] {
	return func(yield func(string) bool) {
		names := users{}
		piece := "["
		for i := range entries {
			if i > 0 {
				piece += ","
			}
			text := jsonText(rowOf(entries[i], names), "  ", "  ")
			piece += "\n  " + strings.TrimSuffix(text, "\n")
			if len(piece) < pieceSize {
				continue
			}
			if !yield(piece) {
				return
			}
			piece = ""
		}
		if len(entries) > 0 {
			piece += "\n"
		}
		yield(piece + "]\n")
	}
}

// Rows converts entries to rows.
func Rows(entries []locks.Entry) []Row {
	rows := []Row{}
	names := users{}
	for _, e := range entries {
		rows = append(rows, rowOf(e, names))
	}
	return rows
}

func rowOf(e locks.Entry, names users) Row {
	row := Row{
		Name: e.Name, Note: e.Note, State: e.State, Slots: append([]int{}, e.Slots...), Position: e.Position,
		Weight: e.Claim.Weight, Max: e.Claim.Max, Priority: e.Claim.Priority,
		Host: e.Host, PID: e.PID, User: names.of(e), Command: append([]string{}, e.Command...), Since: timestamp(sinceOf(e)),
		Fence: e.Fence, Orphaned: e.Orphaned, WaitsFor: e.WaitsFor, Unkept: e.HasNoProcess(), HeldTill: timestamp(e.HeldTill),
	}
	if e.Ref != (locks.Ref{}) { // entries of a plain lock have no ID
		row.ID = e.Ref.String()
	}
	if e.TTL > 0 {
		row.Expires = new(e.Expires.Milliseconds())
	}
	return row
}

func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// sinceOf returns when an entry began to wait or to hold. On a store with leases each golock ls computes
// that from an age. It is rounded, so that two of them show the same time for the same entry.
func sinceOf(e locks.Entry) time.Time {
	if e.TTL > 0 {
		return e.Since.Round(time.Second)
	}
	return e.Since.Round(time.Millisecond)
}

// NameLimit is the number of characters of a lock's or user's name that is shown.
const NameLimit = 40

const (
	gap = 2 // the blanks between two columns

	// A column is not made narrower than this to fit into a width.
	commandLeast = 16
	nameLeast    = 12
	noteLeast    = 16
)

// Table returns the lines of a table, or none if there are no entries. To fit into a width it first
// shortens names and notes, then leaves columns out. A width of 0 has no limit. A column without content is
// left out, unless it is the column of commands.
func Table(entries []locks.Entry, width int) []string {
	if len(entries) == 0 {
		return nil
	}
	heads := []string{
		"NAME", "STATE", "POS", "SLOT", "MAX", "WEIGHT", "PRIORITY", "PID", "USER", "SINCE", "AGE", "LEFT", "NOTE", "COMMAND",
	}
	widths := make([]int, len(heads)) // a width of 0 leaves the column out
	table := [][]string{heads}
	names := users{}
	isBrief := width > 0
	for _, e := range entries {
		cells := cellsOf(e, names.of(e), isBrief)
		table = append(table, cells)
		for i, cell := range cells {
			if cell != "" || i == len(heads)-1 {
				widths[i] = max(widths[i], Width(heads[i]), Width(cell))
			}
		}
	}
	if width > 0 {
		fitColumns(heads, widths, width)
	}
	lines := make([]string, len(table))
	for n, cells := range table {
		var b strings.Builder
		for i, w := range widths {
			if w > 0 {
				cell := Cut(cells[i], w)
				b.WriteString(cell + strings.Repeat(" ", w-Width(cell)+gap))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if width > 0 {
			line = Cut(line, width)
		}
		lines[n] = line
	}
	return lines
}

// cellsOf returns the cells of an entry, in the order of the columns. isBrief asks for a short SINCE.
func cellsOf(e locks.Entry, user string, isBrief bool) []string {
	position, slots := "", "-"
	if e.State == locks.Waiting {
		position = strconv.Itoa(e.Position)
	} else if len(e.Slots) > 0 {
		slots = slotText(e.Slots)
	}
	limit := orUnknown(e.Claim.Max)
	if e.Claim.Max == 0 {
		limit = "shared"
	}
	age := "?"
	if e.HasAge {
		age = spanText(e.Age)
	}
	since := "?"
	switch {
	case e.Since.IsZero():
	case isBrief:
		since = locks.ClockTime(sinceOf(e))
	default:
		since = sinceOf(e).Local().Format(time.DateTime)
	}
	who := cmp.Or(user, "?")
	if e.TTL > 0 && e.Host != "" { // the store serves several hosts
		who = user + "@" + e.Host
	}
	pid, command := orUnknown(e.PID), commandText(e.Command)
	if e.HasNoProcess() {
		pid, command = "-", "(no process)"
	}
	return []string{
		locks.Printable(e.Name, NameLimit), stateOf(e), position, slots, limit,
		unlessUsual(e.Claim.Weight, 1), unlessUsual(e.Claim.Priority, 0), pid, locks.Printable(who, NameLimit),
		since, age, timeLeft(e), locks.Printable(e.Note, locks.MaxNote), command,
	}
}

// commandText writes a command on a line, with quotes around a word that would look like several ones.
func commandText(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = word
		if word == "" || strings.ContainsAny(word, " \t\n") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return locks.Printable(strings.Join(words, " "), 1000)
}

// orUnknown writes a number, or "?" if it is not known: a plain lock does not know every number.
func orUnknown(n int) string {
	if n <= 0 {
		return "?"
	}
	return strconv.Itoa(n)
}

// unlessUsual writes a number, or nothing if it is the usual one.
func unlessUsual(n, usual int) string {
	if n == usual {
		return ""
	}
	return strconv.Itoa(n)
}

// stateOf writes the state of an entry, and what a reader of the table must know with it.
func stateOf(e locks.Entry) string {
	switch {
	case e.Orphaned:
		return "orphaned"
	case e.Ended:
		return "held until " + locks.ClockTime(e.HeldTill)
	case e.Evicted != "":
		return string(e.State) + ", evicted"
	case e.WaitsFor != "":
		return string(e.State) + ", waits for " + locks.Printable(e.WaitsFor, NameLimit)
	}
	return string(e.State)
}

// timeLeft writes the time until an entry ends by itself: when its lease and its hold are both over.
func timeLeft(e locks.Entry) string {
	switch {
	case e.Ended: // the column STATE shows the end
	case !e.HeldTill.IsZero():
		return max(time.Until(e.HeldTill), e.Expires, 0).Truncate(time.Second).String()
	case e.TTL > 0:
		return max(e.Expires, 0).Truncate(time.Second).String()
	}
	return ""
}

func slotText(slots []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(slots), "[]"), " ", ",")
}

// fitColumns changes the widths of columns so that they fit into a total width. It shortens names, then
// notes, then leaves columns out. What is left of the width is for the note, then for the command.
func fitColumns(heads []string, widths []int, width int) {
	name, command := &widths[0], &widths[len(widths)-1]
	note := &widths[slices.Index(heads, "NOTE")]
	fullNote := *note
	used := func() int { // the width of all columns but the last one, and of the gaps behind them
		sum := 0
		for _, w := range widths[:len(widths)-1] {
			if w > 0 {
				sum += w + gap
			}
		}
		return sum
	}
	least := min(*command, commandLeast) // the width that stays for the command
	if excess := used() + least - width; excess > 0 {
		*name = max(*name-excess, min(*name, nameLeast))
	}
	if excess := used() + least - width; excess > 0 {
		*note = max(*note-excess, min(*note, noteLeast))
	}
	for _, head := range []string{"PRIORITY", "WEIGHT", "MAX", "SLOT", "POS", "USER", "LEFT", "SINCE", "NOTE", "AGE", "PID"} {
		if used()+least > width {
			widths[slices.Index(heads, head)] = 0
		}
	}
	if *note > 0 { // the columns that were left out may have made room
		*note = min(fullNote, *note+max(width-used()-least, 0))
	}
	*command = min(*command, max(width-used(), 1))
}

// Width returns the number of columns that a text takes on a terminal.
func Width(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// runeWidth returns 2 for wide characters of East Asia and pictograms (roughly Unicode Standard
// Annex 11), 0 for combining characters, and 1 for all others.
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

// Cut shortens a text to a width, with "…" at the end.
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
