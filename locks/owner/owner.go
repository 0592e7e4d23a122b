// Package owner describes the processes to which the entries of a store belong.
package owner

import (
	"os"
	"unicode/utf8"

	"golock/locks"
)

// Owner describes the process that an entry belongs to.
type Owner struct {
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	UID     int64    `json:"uid"` // an ID of a 64-bit system may not fit into the int of a 32-bit one
	User    string   `json:"user,omitempty"`
	Runs    bool     `json:"runs,omitempty"`   // the slot is for a command (locks.Keeper.HasCommand)
	Unkept  bool     `json:"unkept,omitempty"` // no process stays with the slot (locks.KeptByNobody)
	Command []string `json:"command,omitempty"`
	Note    string   `json:"note,omitempty"` // why the entry is there (locks.Request.Note)
	Next    string   `json:"next,omitempty"` // the name that the run takes next (locks.Request.Next)
}

// maxCommand is how many bytes of a note, the next name and a command together Of keeps.
const maxCommand = 1024

// Of describes this process as the owner of a request.
func Of(r locks.Request) Owner {
	o := Owner{
		PID: os.Getpid(), UID: int64(os.Geteuid()), User: r.User, Note: r.Note, Next: r.Next,
		Runs: r.Keeper.HasCommand(), Unkept: r.Keeper == locks.KeptByNobody,
	}
	o.Host, _ = os.Hostname()
	room := max(maxCommand-len(r.Note)-len(r.Next), 0) // thousands of entries must fit into one answer of a store
	for _, word := range r.Command {
		if len(word) >= room {
			o.Command = append(o.Command, begin(word, room)+"…")
			break
		}
		room -= len(word) + 1 // counts an empty word too, because there may be many
		o.Command = append(o.Command, word)
	}
	return o
}

// maxWords is how many words of a command Limit keeps. Each word takes memory, even if it is empty.
const maxWords = 128

// Limit shortens texts that others have written, so that a listing of thousands of entries fits
// into memory.
func (o *Owner) Limit() {
	o.Host, o.User, o.Next, o.Note = cut(o.Host, maxName), cut(o.User, maxName), cut(o.Next, maxName), cut(o.Note, maxNote)
	room := maxCommand
	var words []string
	for i, word := range o.Command {
		if i == maxWords || room <= 0 {
			words = append(words, "…")
			break
		}
		words = append(words, cut(word, room))
		room -= len(word) + 1
	}
	o.Command = words
}

// maxName is how many bytes of the name of a host, a user or a lock Limit keeps.
const maxName = 255

// maxNote is how many bytes of a note Limit keeps. No valid note is longer.
const maxNote = locks.MaxNote * utf8.UTFMax

// cut returns a text. It shortens a text that is longer than limit and an ellipsis. The short text is a copy, so
// that the memory of the long one can be freed.
func cut(text string, limit int) string {
	if len(text) <= limit+len("…") {
		return text
	}
	return begin(text, limit) + "…"
}

// begin returns the beginning of a text that has limit bytes or more: at most limit bytes, without a part of
// a character at the end.
func begin(text string, limit int) string {
	if limit == len(text) {
		return text
	}
	for end := limit; end > max(limit-utf8.UTFMax, 0); end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:limit] // the text is not UTF-8
}

// Describe copies the owner into an entry. On another host the UID means nothing, so it is left
// out.
func (o Owner) Describe(e *locks.Entry) {
	e.Host, e.PID, e.UID, e.User, e.Runs, e.Command = o.Host, o.PID, int(o.UID), o.User, o.Runs, o.Command
	e.Note, e.Next, e.Unkept = o.Note, o.Next, o.Unkept
	if host, err := os.Hostname(); err != nil || host != o.Host {
		e.UID = -1
	}
}
