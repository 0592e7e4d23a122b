package local

import (
	"strings"

	"golock/locks"
)

// record.extra consists of words of the form KEY=VALUE, each ended by a zero. A version of golock keeps the
// words that it does not know.

// noteWord begins the word that says why an entry is there (locks.Request.Note), nextWord the one that says
// which name its run takes next (locks.Request.Next).
const (
	noteWord = "note="
	nextWord = "next="
)

// extraOf returns the text of record.extra for a request.
func extraOf(r *locks.Request) (extra string) {
	if r.Note != "" {
		extra = noteWord + r.Note + "\x00"
	}
	if r.Next != "" {
		extra += nextWord + r.Next + "\x00"
	}
	return extra
}

// word returns the value of a word of a record, or "" if it has none. A full record has no room for any.
func (r *record) word(key string) string {
	for word := range strings.SplitSeq(r.extra, "\x00") {
		if value, found := strings.CutPrefix(word, key); found {
			return value
		}
	}
	return ""
}
