package sql

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"golock/locks"
)

// detail is what an entry tells about its owner.
type detail struct {
	host    string
	pid     int
	uid     int
	user    string
	runs    bool // see locks.Request
	command []string
}

// maxCommand is how many bytes of a command are stored, as they are written.
const maxCommand = 2400

func describe(r locks.Request) detail {
	d := detail{pid: os.Getpid(), uid: os.Geteuid(), command: r.Command, runs: r.Runs}
	d.host, _ = os.Hostname()
	if u, err := user.LookupId(strconv.Itoa(d.uid)); err == nil {
		d.user = u.Username
	}
	return d
}

// String writes it as the query of a URL.
func (d detail) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "host=%s&pid=%d&uid=%d&user=%s", escape(d.host, 765), d.pid, d.uid, escape(d.user, 300))
	if d.runs {
		b.WriteString("&runs=1")
	}
	room := maxCommand
	for _, word := range d.command {
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

// parseDetail reads what String wrote.
func parseDetail(text string) detail {
	d := detail{uid: -1}
	for field := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "host":
			d.host = unescape(value)
		case "pid":
			d.pid, _ = strconv.Atoi(value)
		case "uid":
			d.uid, _ = strconv.Atoi(value)
		case "user":
			d.user = unescape(value)
		case "runs":
			d.runs = true
		case "arg":
			d.command = append(d.command, unescape(value))
		}
	}
	if host, err := os.Hostname(); err != nil || host != d.host {
		d.uid = -1
	}
	return d
}

// loginMark stands before an entry's account at the server, which is the last of
// its information: it is known only when the entry is written.
const loginMark = "&login="

func withLogin(info, account string) string {
	info, _, _ = strings.Cut(info, loginMark)
	return info + loginMark + escape(account, 300)
}

// loginOf is the account that withLogin has added, "" for none.
func loginOf(info string) string {
	_, login, _ := strings.Cut(info, loginMark)
	return unescape(login)
}
