// Package owner describes the process that an entry of a store belongs to.
package owner

import (
	"os"

	"golock/locks"
)

// Owner describes the process that an entry belongs to.
type Owner struct {
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	UID     int64    `json:"uid"` // one of a 64-bit system may be no int on a 32-bit one
	User    string   `json:"user,omitempty"`
	Runs    bool     `json:"runs,omitempty"` // locks.Keeper.HasCommand
	Command []string `json:"command,omitempty"`
}

// maxCommand is how many bytes of a command are kept.
const maxCommand = 1024

// This describes a request of this process.
func This(r locks.Request) Owner {
	o := Owner{PID: os.Getpid(), UID: int64(os.Geteuid()), User: r.User, Runs: r.Keeper.HasCommand()}
	o.Host, _ = os.Hostname()
	room := maxCommand
	for _, word := range r.Command {
		if len(word) >= room {
			o.Command = append(o.Command, word[:room]+"…")
			break
		}
		room -= len(word) + 1 // many words may be empty
		o.Command = append(o.Command, word)
	}
	return o
}

// maxWords is how many words of a command are shown: each takes memory, even if it is empty.
const maxWords = 128

// Limit cuts what others have written to what a listing of thousands of entries has room for.
func (o *Owner) Limit() {
	o.Host, o.User = cut(o.Host, maxName), cut(o.User, maxName)
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

// maxName is how many bytes of the name of a host or user are kept.
const maxName = 255

// cut keeps the beginning of a text, and no more in memory.
func cut(text string, limit int) string {
	if len(text) <= limit+len("…") {
		return text
	}
	return text[:limit] + "…"
}

// Describe writes the owner into an entry. The UID means nothing on another host.
func (o Owner) Describe(e *locks.Entry) {
	e.Host, e.PID, e.UID, e.User, e.Runs, e.Command = o.Host, o.PID, int(o.UID), o.User, o.Runs, o.Command
	if host, err := os.Hostname(); err != nil || host != o.Host {
		e.UID = -1
	}
}
