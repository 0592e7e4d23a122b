package sql

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"golock/locks"
	"golock/locks/lease"
)

// maxCommand is how many bytes of a command are stored, as they are written.
const maxCommand = 2400

// infoOf describes a request of this process as the query of a URL, with more of its
// command than others store.
func infoOf(r locks.Request) string {
	o := lease.ThisOwner(r)
	var b strings.Builder
	fmt.Fprintf(&b, "host=%s&pid=%d&uid=%d&user=%s", escape(o.Host, 765), o.PID, o.UID, escape(o.User, 300))
	if o.Runs {
		b.WriteString("&runs=1")
	}
	room := maxCommand
	for _, word := range r.Command {
		text := "&arg=" + escape(word, room)
		room -= len(text)
		b.WriteString(text)
		if room <= 0 {
			b.WriteString(escape("…", 9))
			break
		}
	}
	return b.String()
}

// parseOwner reads what infoOf wrote. A word that was cut may end with half a letter.
func parseOwner(text string) lease.Owner {
	fields, _ := url.ParseQuery(text)
	for _, values := range fields {
		for i := range values {
			values[i] = strings.ToValidUTF8(values[i], "�")
		}
	}
	o := lease.Owner{
		Host: fields.Get("host"), UID: -1, User: fields.Get("user"), Runs: fields.Has("runs"), Command: fields["arg"],
	}
	o.PID, _ = strconv.Atoi(fields.Get("pid"))
	if uid, err := strconv.Atoi(fields.Get("uid")); err == nil {
		o.UID = uid
	}
	return o
}

// loginMark stands before an entry's account and server at the end of its info: they are
// known only when the entry is written.
const loginMark = "&login="

const maxLogin = 300

func withLogin(info, account string) string {
	info, _, _ = strings.Cut(info, loginMark)
	return info + loginMark + escape(account, maxLogin)
}

// loginOf is the account that withLogin has added, "" for none.
func loginOf(info string) string {
	_, login, _ := strings.Cut(info, loginMark)
	return unescape(login)
}
