package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner"
)

// When a user is told that a run waits, after it has queued.
const (
	liveAfter  = 300 * time.Millisecond // a line that is rewritten in place
	liveBeat   = time.Second
	linesAfter = time.Second // lines, the pause doubling after each
	linesMost  = time.Hour
	statusBeat = time.Minute // to the service manager
)

// pace is when somebody is told of the waiting, and how.
type pace struct {
	Live   bool // on a terminal: one line, rewritten in place
	Lines  bool // elsewhere: a line now and then
	Notify bool // the service manager, by sd_notify(3)

	began time.Time
	pause time.Duration // between lines
	line  time.Time     // when the next is due, or would be
}

// paceOf finds out who is there to be told. A line is only rewritten where
// golock leads the job of a terminal, as when it was typed at a prompt: beside
// others, as in make -j, it would run into what they write.
func (p *printer) paceOf() pace {
	how := pace{Notify: os.Getenv("NOTIFY_SOCKET") != ""}
	if p.quiet || isNull(p.fd) {
		return how
	}
	term := os.Getenv("TERM")
	how.Live = !p.json && screenOf(p.fd).columns > 0 && term != "" && term != "dumb" && unix.Getpgrp() == os.Getpid()
	how.Lines = !how.Live
	return how
}

// isNull reports whether nobody reads what is written there.
func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || (st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3))
}

// waits gives the function that a run tells of its waiting; nil: nobody is to
// know.
func (p *pace) waits(tell func(w *runner.Waiting, line bool)) func(*runner.Waiting) time.Duration {
	if !p.Live && !p.Lines && !p.Notify {
		return nil
	}
	return func(w *runner.Waiting) time.Duration {
		if w == nil {
			tell(nil, false)
			p.began = time.Time{}
			return 0
		}
		now := time.Now()
		if p.began.IsZero() {
			p.began, p.pause, p.line = now, linesAfter, now.Add(linesAfter)
			if p.Live {
				p.line = now.Add(liveAfter)
			}
		}
		due := !now.Before(p.line) && (p.Live || p.Lines)
		tell(w, due)
		switch {
		case due && p.Live:
			p.line = now.Add(liveBeat)
		case !now.Before(p.line):
			p.pause = min(2*p.pause, linesMost)
			p.line = now.Add(p.pause)
		}
		next := max(p.line.Sub(now), time.Millisecond)
		if p.Notify {
			next = min(next, statusBeat)
		}
		return next
	}
}

// waits tells of the waiting as is fit for who is there.
func (p *printer) waits() func(*runner.Waiting) time.Duration {
	how := p.paceOf()
	return how.waits(p.tellWaiting(how))
}

// tellWaiting gives the function that does the telling; line: that of the
// terminal or the log is due.
func (p *printer) tellWaiting(how pace) func(w *runner.Waiting, line bool) {
	var manager *notifier
	if how.Notify {
		manager = newNotifier(os.Getenv("NOTIFY_SOCKET"))
	}
	host := ""
	return func(w *runner.Waiting, line bool) {
		switch {
		case w == nil:
			p.live("")
			manager.done()
			return
		case host == "":
			host, _ = os.Hostname()
		}
		switch {
		case line && how.Live:
			const prefix = "golock: "
			p.live(prefix + waitingText(w, host, time.Now(), screenOf(p.fd).columns-1-len(prefix)))
		case line && p.json:
			p.line("info", "still waiting", []any{
				"name", w.Name, "place", w.Place, "waited", time.Since(w.Began), "holders", len(w.Holders), "held_by", holdersText(w.Holders),
			})
		case line:
			p.line("info", waitingText(w, host, time.Now(), 0), nil)
		}
		manager.waiting(waitingText(w, host, time.Now(), 0))
	}
}

func holdersText(holders []locks.Entry) string {
	texts := make([]string, 0, len(holders))
	for i, h := range holders {
		if i == 3 {
			texts = append(texts, fmt.Sprintf("%d more", len(holders)-i))
			break
		}
		texts = append(texts, h.Holder())
	}
	return strings.Join(texts, ", ")
}

// waitingText says why a run waits. With a width the holder's command is
// shortened first to make it fit; the end of what is still too long is for the
// caller to cut off.
func waitingText(w *runner.Waiting, host string, now time.Time, width int) string {
	const longest = 40
	text := waitingTextWith(w, host, now, longest)
	if over := columnsWide(text) - width; width > 0 && over > 0 && len(w.Holders) > 0 {
		command := columnsWide(locks.Printable(strings.Join(w.Holders[0].Command, " "), longest))
		text = waitingTextWith(w, host, now, max(command-over-1, 0))
	}
	return text
}

// waitingTextWith gives the command at most that many characters.
func waitingTextWith(w *runner.Waiting, host string, now time.Time, command int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %q", locks.Printable(w.Name, nameLimit))
	if waited := now.Sub(w.Began); waited >= 10*time.Second {
		b.WriteString(" for " + spanText(waited))
	}
	sep := ": "
	switch w.Place {
	case 0:
	case 1:
		b.WriteString(sep + "next in line")
		sep = ", "
	default:
		b.WriteString(sep + ordinal(w.Place) + " in line")
		sep = ", "
	}
	if len(w.Holders) > 0 {
		b.WriteString(sep + "held by " + holderText(w.Holders[0], host, now, command))
		if more := len(w.Holders) - 1; more > 0 {
			fmt.Fprintf(&b, " and %d more", more)
		}
		sep = "; "
	}
	if w.Problem != "" {
		b.WriteString(sep + locks.Printable(w.Problem, 200))
	}
	return b.String()
}

// holderText says in few words who holds and for how long.
func holderText(e locks.Entry, host string, now time.Time, command int) string {
	text := "a process that cannot be seen"
	if e.PID > 0 {
		text = fmt.Sprintf("pid %d", e.PID)
	}
	if e.Orphaned {
		text = "what " + text + " left running"
	}
	if e.Host != "" && e.Host != host {
		text += " on " + locks.Printable(e.Host, nameLimit)
	}
	if len(e.Command) > 0 && command > 0 {
		text += " (" + cut(locks.Printable(strings.Join(e.Command, " "), 40), command+1) + ")"
	}
	switch {
	case e.Ended:
		return text + " until " + sinceText(e.HeldTill.Format(time.RFC3339Nano), true) + ", which has ended"
	case e.Evicted != "":
		text += ", told to go,"
	}
	if !e.Since.IsZero() {
		text += " for " + spanText(now.Sub(e.Since))
	}
	return text
}

// spanText is a time for people: its two largest units.
func spanText(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

func ordinal(n int) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}

// clearLine goes to the beginning of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// live rewrites the line that stands on the terminal while golock waits; ""
// removes it. A golock in the background writes nothing: the line belongs to
// whoever is in front.
func (p *printer) live(text string) {
	if text == "" {
		if p.drawn {
			p.drawn = false
			p.write([]byte(clearLine))
		}
		return
	}
	front, err := unix.IoctlGetInt(p.fd, unix.TIOCGPGRP)
	if err != nil || front != unix.Getpgrp() {
		p.drawn = false
		return
	}
	p.drawn = true
	p.write([]byte(clearLine + cut(text, max(screenOf(p.fd).columns-1, 1))))
}
