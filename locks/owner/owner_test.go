package owner

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golock/locks"
)

// A text that is too long keeps whole characters, and as many bytes as it may.
func TestCharactersAreNotCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("é", 2000), strings.Repeat("€", 2000), strings.Repeat("😀", 2000), strings.Repeat("\x80", 2000)} {
		for shift := range utf8.UTFMax {
			word := strings.Repeat("x", shift) + text
			o := Of(locks.Request{Command: []string{word}})
			cuts := map[string]int{o.Command[0]: maxCommand}
			o = Owner{User: word, Note: word, Command: []string{word}}
			o.Limit()
			cuts[o.User], cuts[o.Note], cuts[o.Command[0]] = maxName, maxNote, maxCommand
			for got, limit := range cuts {
				kept, isCut := strings.CutSuffix(got, "…")
				isWhole := utf8.ValidString(kept) || !utf8.ValidString(word)
				isLong := limit-utf8.UTFMax < len(kept) && len(kept) <= limit
				if !isCut || !isWhole || !isLong || !strings.HasPrefix(word, kept) {
					t.Errorf("of %d× %q are kept %d bytes of %d, the end is %q", shift, text[:4], len(kept), limit, got[len(got)-8:])
				}
			}
		}
	}
	whole := strings.Repeat("x", maxCommand)
	if o := Of(locks.Request{Command: []string{whole}}); o.Command[0] != whole+"…" {
		t.Errorf("of %d bytes are kept %d", maxCommand, len(o.Command[0]))
	}
}
