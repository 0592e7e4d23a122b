package locks

import "strings"

// Printable shortens s to at most limit runes on one line, with control
// characters replaced: what others wrote into a store must not steer a
// terminal.
func Printable(s string, limit int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == limit {
			b.WriteString("…")
			break
		}
		if IsTerminalControl(r) {
			r = '�'
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// IsTerminalControl reports whether a character does something to a terminal, or to the
// order in which text is read, instead of being seen: control characters, those
// of C1 among them, ends of lines, and what turns the direction of writing
// (Unicode Standard Annex 9).
func IsTerminalControl(r rune) bool {
	switch {
	case isControl(r), r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u2028' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return true
	}
	return false
}
