package sql

import (
	"net/url"
	"strconv"

	"golock/locks"
	"golock/locks/owner"
)

// noteField is the key of a note. Encode sorts by the keys, and a text that is too long is cut off at its end. So
// the note has a key that comes after all others, but before the key of the command.
const noteField = "why"

// nextField is the key of owner.Owner.Next. It comes before noteField.
const nextField = "wants"

// infoOf describes a request of this process as the query of a URL. The command comes last, because a text that
// is too long is cut off at its end.
func infoOf(r locks.Request) string {
	o := owner.Of(r)
	fields := url.Values{
		"host": {o.Host}, "pid": {strconv.Itoa(o.PID)}, "uid": {strconv.FormatInt(o.UID, 10)}, "user": {o.User},
		"word": o.Command,
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

// parseOwner reads what infoOf wrote. An escape that was cut off would make the last field malformed.
func parseOwner(text string) owner.Owner {
	fields, _ := url.ParseQuery(wholeLetters(text))
	o := owner.Owner{
		Host: fields.Get("host"), UID: -1, User: fields.Get("user"), Runs: fields.Has("runs"), Unkept: fields.Has("unkept"),
		Command: fields["word"], Note: fields.Get(noteField), Next: fields.Get(nextField),
	}
	o.PID, _ = strconv.Atoi(fields.Get("pid"))
	if uid, err := strconv.ParseInt(fields.Get("uid"), 10, 64); err == nil {
		o.UID = uid
	}
	return o
}
