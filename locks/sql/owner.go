package sql

import (
	"net/url"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/owner"
)

// noteField is the key of a note. Keys are sorted, and what there is no room for is cut off at the end: the note
// stands before the command, and after everything else.
const noteField = "why"

// nextField is the key of owner.Owner.Next. It stands before the note.
const nextField = "wants"

// infoOf describes a request of this process as the query of a URL. Its command comes last: what
// there is no room for is cut off.
func infoOf(r locks.Request) string {
	o := owner.Of(r)
	fields := url.Values{
		"host": {o.Host}, "pid": {strconv.Itoa(o.PID)}, "uid": {strconv.FormatInt(o.UID, 10)}, "user": {o.User}, "word": o.Command,
	}
	if o.Runs {
		fields.Set("runs", "1")
	}
	if o.Unkept {
		fields.Set("unkept", "1")
	}
	if o.Next != "" {
		fields.Set(nextField, o.Next)
	}
	if o.Note != "" {
		fields.Set(noteField, o.Note)
	}
	return cut(fields.Encode(), maxInfo)
}

// parseOwner reads what infoOf wrote.
func parseOwner(text string) owner.Owner {
	fields, _ := url.ParseQuery(withoutCutEscape(text))
	o := owner.Owner{
		Host: fields.Get("host"), UID: -1, User: fields.Get("user"), Runs: fields.Has("runs"), Unkept: fields.Has("unkept"), Command: fields["word"], Note: fields.Get(noteField), Next: fields.Get(nextField),
	}
	o.PID, _ = strconv.Atoi(fields.Get("pid"))
	if uid, err := strconv.ParseInt(fields.Get("uid"), 10, 64); err == nil {
		o.UID = uid
	}
	return o
}

// withoutCutEscape removes an escape at the end of which only the beginning was kept. With it the last field
// would be malformed.
func withoutCutEscape(text string) string {
	const longest = len("%4")
	if i := strings.LastIndexByte(text, '%'); i >= 0 && len(text)-i <= longest {
		return text[:i]
	}
	return text
}
