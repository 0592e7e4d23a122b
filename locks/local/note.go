package local

import "strings"

// record.extra consists of words of the form KEY=VALUE, each ended by a zero. A version of golock keeps the
// words that it does not know.

// noteWord begins the word that says why an entry is there (locks.Request.Note).
const noteWord = "note="

// noteExtra returns the text of record.extra for a note.
func noteExtra(note string) string {
	if note == "" {
		return ""
	}
	return noteWord + note + "\x00"
}

// note returns the note of a record, or "" if it has none. A full record has no room for one.
func (r *record) note() string {
	for word := range strings.SplitSeq(r.extra, "\x00") {
		if note, found := strings.CutPrefix(word, noteWord); found {
			return note
		}
	}
	return ""
}
