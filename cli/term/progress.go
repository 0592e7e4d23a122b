package term

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks"
	"golock/runner"
)

// When a waiting run reports its progress.
const (
	firstLine    = time.Second
	firstLive    = 300 * time.Millisecond
	livePeriod   = time.Second
	longestPause = time.Hour   // between lines; it doubles after each
	statusPeriod = time.Minute // to the service manager
)

// Pace says when and how the progress of waiting is reported.
type Pace struct {
	Live   bool // on a terminal: one line, rewritten in place
	Lines  bool // elsewhere: a line now and then
	Notify bool // to the service manager, by sd_notify(3)

	pause time.Duration // before the next line
	line  time.Time     // when it is due; zero: golock does not wait
}

// PaceOf finds out who reads.
func (p *Printer) PaceOf() Pace {
	var st unix.Stat_t
	closed := unix.Fstat(unix.Stderr, &st) != nil
	null := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
	lines := !p.Quiet && !closed && !null
	live := lines && p.isLive()
	return Pace{Live: live, Lines: lines && !live, Notify: os.Getenv("NOTIFY_SOCKET") != ""}
}

// isLive reports whether a line can be rewritten: only where golock leads the job of a
// terminal. In make -j it would run into what others write.
func (p *Printer) isLive() bool {
	term := os.Getenv("TERM")
	return !p.JSON && ScreenOf(unix.Stderr).Columns > 0 && term != "" && term != "dumb" && unix.Getpgrp() == os.Getpid()
}

// Waits gives the function that a waiting run calls: it reports, and returns when
// to call again. line: a line is due. It is nil if nobody reads.
func (p *Pace) Waits(report func(w *runner.Waiting, line bool)) func(*runner.Waiting) time.Duration {
	if !p.Live && !p.Lines && !p.Notify {
		return nil
	}
	return func(w *runner.Waiting) time.Duration {
		now := time.Now()
		switch {
		case w == nil:
			report(nil, false)
			p.line = time.Time{}
			return 0
		case p.line.IsZero() && p.Live:
			p.pause, p.line = livePeriod, now.Add(firstLive)
		case p.line.IsZero():
			p.pause, p.line = firstLine, now.Add(firstLine)
		}
		due := !now.Before(p.line)
		report(w, due && (p.Live || p.Lines))
		if due && !p.Live {
			p.pause = min(2*p.pause, longestPause)
		}
		if due {
			p.line = now.Add(p.pause)
		}
		next := max(p.line.Sub(now), time.Millisecond)
		if p.Notify {
			next = min(next, statusPeriod)
		}
		return next
	}
}

// Waits reports progress to whoever reads.
func (p *Printer) Waits() func(*runner.Waiting) time.Duration {
	pace := p.PaceOf()
	return pace.Waits(p.Report)
}

// Report shows that a run waits, to people if a line is due; nil: it does not wait any more.
func (p *Printer) Report(w *runner.Waiting, line bool) {
	if w == nil {
		p.Live("")
		notifyManager("")
		return
	}
	now := time.Now()
	text := waitingText(w, now, 0)
	switch {
	case line && p.isLive():
		const prefix = "golock: "
		p.Live(prefix + waitingText(w, now, ScreenOf(unix.Stderr).Columns-1-len(prefix)))
	case line && p.JSON:
		p.Line("info", "still waiting", []any{
			"place", w.Place, "waited", now.Sub(w.Began),
			"holders", len(w.Holders), "held_by", locks.HoldersText(w.Holders), "pause", w.Pause,
		})
	case line:
		p.Line("info", text, nil)
	}
	notifyManager(text)
}

// startTime is what each message grants the start: longer than the pause between
// two, so that the command has time too.
const startTime = 2 * statusPeriod

// notifyManager tells the service manager why the start takes time (sd_notify(3)), or with ""
// that golock does not wait any more: systemctl status shows STATUS=, EXTEND_TIMEOUT_USEC=
// extends the time to start. The command itself says when it is ready.
func notifyManager(status string) {
	address := os.Getenv("NOTIFY_SOCKET") // a path, or @ and an abstract name; vsock is not served
	if address == "" {
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	message := fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", status, startTime.Microseconds())
	_ = unix.Sendto(fd, []byte(message), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: address})
}

// waitingText says why a run waits. To fit into a width it shortens the holder's
// command; the caller cuts what is still too long.
func waitingText(w *runner.Waiting, now time.Time, width int) string {
	text := ""
	for command := 40; command >= 0; command-- {
		if text = waitingLine(w, now, command); width == 0 || Width(text) <= width {
			break
		}
	}
	return text
}

// waitingLine shows at most so many characters of the command.
func waitingLine(w *runner.Waiting, now time.Time, command int) string {
	text := fmt.Sprintf("waiting for %q", locks.Printable(w.Name, NameLimit))
	if waited := now.Sub(w.Began); waited >= 10*time.Second {
		text += " for " + spanText(waited)
	}
	var facts []string
	switch w.Place {
	case 0:
	case 1:
		facts = append(facts, "next in line")
	default:
		facts = append(facts, ordinal(w.Place)+" in line")
	}
	if len(w.Holders) > 0 {
		held := "held by " + holderText(w.Holders[0], now, command)
		if more := len(w.Holders) - 1; more > 0 {
			held += fmt.Sprintf(" and %d more", more)
		}
		facts = append(facts, held)
	}
	if !w.Until.IsZero() {
		facts = append(facts, "gives up in "+spanText(w.Until.Sub(now)))
	}
	for _, problem := range []string{w.Pause, w.Problem} {
		if problem != "" {
			facts = append(facts, locks.Printable(problem, 200))
		}
	}
	if len(facts) > 0 {
		text += ": " + strings.Join(facts, ", ")
	}
	return text
}

// holderText says in few words who holds and for how long.
func holderText(e locks.Entry, now time.Time, command int) string {
	text := e.Who(command)
	switch {
	case e.Ended:
		return text + " until " + locks.ClockTime(e.HeldTill) + ", which has ended"
	case e.Evicted != "":
		text += ", evicted,"
	}
	if e.HasAge {
		text += " for " + spanText(now.Sub(e.Since))
	}
	return text
}

// spanText is a time for people: its two largest units.
func spanText(d time.Duration) string {
	seconds := int(max(d, 0) / time.Second)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 60*60:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	case seconds < 24*60*60:
		return fmt.Sprintf("%dh%02dm", seconds/60/60, seconds/60%60)
	}
	return fmt.Sprintf("%dd%02dh", seconds/60/60/24, seconds/60/60%24)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		suffix = [10]string{"th", "st", "nd", "rd", "th", "th", "th", "th", "th", "th"}[n%10]
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// Live rewrites the line of progress on a terminal; "" removes it. In
// the background it writes nothing: the terminal belongs to the foreground job.
func (p *Printer) Live(text string) {
	if text == "" {
		if p.drawn {
			p.drawn = false
			p.write([]byte(clearLine))
		}
		return
	}
	front, err := unix.IoctlGetInt(unix.Stderr, unix.TIOCGPGRP)
	if p.drawn = err == nil && front == unix.Getpgrp(); p.drawn {
		p.write([]byte(clearLine + Cut(text, max(ScreenOf(unix.Stderr).Columns-1, 1))))
	}
}
