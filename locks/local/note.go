package local

import (
	"strings"

	"golock/locks"
)

// record.extra consists of words of the form KEY=VALUE, each ended by a zero. A golock that writes a record
// again keeps the words that it does not know.

// These are the beginnings of the words.
const (
	noteWord = "note=" // why the entry is there (locks.Request.Note)
	nextWord = "next=" // which name the run takes next (locks.Request.Next)
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

// word returns the value of the word that begins with a text, or "" if the record has no such word. A full
// record has no room for words.
func (r *record) word(begin string) string {
	for word := range strings.SplitSeq(r.extra, "\x00") {
		if value, found := strings.CutPrefix(word, begin); found {
			return value
		}
	}
	return ""
}
