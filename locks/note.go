package locks

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A note is a text in which a user says why a run is there. Everybody who reads the store sees it.

// MaxNote is the largest number of characters of a note.
const MaxNote = 200

// CheckNote returns an error if a note is not allowed: it must be UTF-8 of at most MaxNote characters,
// none of which controls a terminal.
func CheckNote(note string) error {
	if !utf8.ValidString(note) {
		return errors.New("is not valid UTF-8")
	}
	if n := utf8.RuneCountInString(note); n > MaxNote {
		return fmt.Errorf("has %d characters, at most %d are allowed", n, MaxNote)
	}
	for _, r := range note {
		if IsTerminalControl(r) {
			return fmt.Errorf("contains the control character %U", r)
		}
	}
	return nil
}

// CleanNote makes a note of any text: it replaces characters that CheckNote refuses, and shortens the text.
func CleanNote(text string) string {
	runes := []rune(strings.ToValidUTF8(text, string(utf8.RuneError)))
	if len(runes) > MaxNote {
		runes = append(runes[:MaxNote-1], '…')
	}
	for i, r := range runes {
		if IsTerminalControl(r) {
			runes[i] = utf8.RuneError
		}
	}
	return string(runes)
}
