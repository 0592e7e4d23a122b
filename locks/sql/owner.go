package sql

import (
	"net/url"
	"strconv"

	"golock/locks"
	"golock/locks/owner"
)

// infoOf describes a request of this process as the query of a URL. Its command comes last: what
// there is no room for is cut off.
func infoOf(r locks.Request) string {
	o := owner.This(r)
	fields := url.Values{
		"host": {o.Host}, "pid": {strconv.Itoa(o.PID)}, "uid": {strconv.FormatInt(o.UID, 10)}, "user": {o.User}, "word": o.Command,
	}
	if o.Runs {
		fields.Set("runs", "1")
	}
	return cut(fields.Encode(), maxInfo)
}

// parseOwner reads what infoOf wrote.
func parseOwner(text string) owner.Owner {
	fields, _ := url.ParseQuery(text)
	o := owner.Owner{
		Host: fields.Get("host"), UID: -1, User: fields.Get("user"), Runs: fields.Has("runs"), Command: fields["word"],
	}
	o.PID, _ = strconv.Atoi(fields.Get("pid"))
	if uid, err := strconv.ParseInt(fields.Get("uid"), 10, 64); err == nil {
		o.UID = uid
	}
	return o
}
