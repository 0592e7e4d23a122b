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

// These durations say when a waiting run reports its progress.
const (
	firstLine    = time.Second            // the time until the first line
	longestPause = time.Hour              // the longest time between two lines; the time doubles after each line
	firstLive    = 300 * time.Millisecond // the time until the first line that is rewritten in place
	livePeriod   = time.Second            // the time between two rewrites of that line
	statusPeriod = time.Minute            // the time between two messages to the service manager
)

// Pace says when and how the progress of waiting is reported.
type Pace struct {
	Live   bool // progress is one line on a terminal, rewritten in place
	Lines  bool // progress is a line now and then, because there is no terminal
	Notify bool // the service manager gets messages, by sd_notify(3)

	pause    time.Duration // the time before the next line
	nextLine time.Time     // when the next line is due; zero while golock does not wait
}

// PaceOf returns a pace for those who read the progress: a person at a terminal, a log, the service manager.
func (p *Printer) PaceOf() Pace {
	var st unix.Stat_t
	err := unix.Fstat(unix.Stderr, &st)
	isClosed := err != nil
	isNull := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) // /dev/null
	isRead := !p.Quiet && !isClosed && !isNull
	isLive := isRead && p.isLive()
	return Pace{Live: isLive, Lines: isRead && !isLive, Notify: os.Getenv("NOTIFY_SOCKET") != ""}
}

// isLive reports whether golock rewrites a line of progress in place. It does so on a terminal if it leads
// its job. A golock that make -j has started leads none, and its line would mix with what others write.
func (p *Printer) isLive() bool {
	kind := os.Getenv("TERM")
	canRewrite := kind != "" && kind != "dumb" && ScreenOf(unix.Stderr).Columns > 0
	leadsJob := unix.Getpgrp() == os.Getpid()
	return !p.JSON && canRewrite && leadsJob
}

// OnProgress returns the function that a waiting run calls. The function reports the progress, and
// returns the delay until it wants to be called again. It calls report with isDue set when a line
// is due. OnProgress returns nil if nobody reads the progress.
func (p *Pace) OnProgress(report func(w *runner.WaitProgress, isDue bool)) func(*runner.WaitProgress) time.Duration {
	if !p.Live && !p.Lines && !p.Notify {
		return nil
	}
	return func(w *runner.WaitProgress) time.Duration { return p.update(w, report) }
}

// update calls report with the progress, and returns the delay until the next call.
func (p *Pace) update(w *runner.WaitProgress, report func(w *runner.WaitProgress, isDue bool)) time.Duration {
	now := time.Now()
	switch {
	case w == nil:
		const isDue = false
		report(nil, isDue)
		p.nextLine = time.Time{}
		return 0
	case p.nextLine.IsZero() && p.Live:
		p.pause, p.nextLine = livePeriod, now.Add(firstLive)
	case p.nextLine.IsZero():
		p.pause, p.nextLine = firstLine, now.Add(firstLine)
	}
	isDue := !now.Before(p.nextLine)
	report(w, isDue && (p.Live || p.Lines))
	if isDue && !p.Live {
		p.pause = min(2*p.pause, longestPause)
	}
	if isDue {
		p.nextLine = now.Add(p.pause)
	}
	delay := max(p.nextLine.Sub(now), time.Millisecond)
	if p.Notify {
		delay = min(delay, statusPeriod)
	}
	return delay
}

// OnProgress returns the function that a waiting run calls to report its progress.
func (p *Printer) OnProgress() func(*runner.WaitProgress) time.Duration {
	pace := p.PaceOf()
	return pace.OnProgress(p.Report)
}

// Report reports that a run waits. People get a line if one is due; the service manager always gets
// a message. A nil w says that the run does not wait any more.
func (p *Printer) Report(w *runner.WaitProgress, isDue bool) {
	if w == nil {
		p.Live("")
		notifyManager("")
		return
	}
	now := time.Now()
	text := waitingText(w, now, 0)
	switch {
	case isDue && p.isLive():
		const prefix = "golock: "
		p.Live(prefix + waitingText(w, now, ScreenOf(unix.Stderr).Columns-1-len(prefix)))
	case isDue && p.JSON:
		p.Line("info", "still waiting", []any{
			"place", w.Place, "waited", now.Sub(w.Began),
			"holders", len(w.Holders), "held_by", locks.HoldersText(w.Holders), "pause", w.Pause,
		})
	case isDue:
		p.Line("info", text, nil)
	}
	notifyManager(text)
}

// startExtension is the time by which each message extends the time to start. It is longer than the time
// between two messages, so that the command gets time to start too.
const startExtension = 2 * statusPeriod

// notifyManager tells the service manager why the start takes long (sd_notify(3)). An empty status
// says that golock does not wait any more. systemctl status shows STATUS=, and EXTEND_TIMEOUT_USEC=
// extends the time to start. The command itself says when it is ready.
func notifyManager(status string) {
	address := os.Getenv("NOTIFY_SOCKET") // a path, or @ and an abstract name; golock does not serve vsock addresses
	if address == "" {
		return
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	message := fmt.Sprintf("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", status, startExtension.Microseconds())
	_ = unix.Sendto(fd, []byte(message), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: address})
}

// waitingText says why a run waits. To fit into a width it shortens the command of the holder. The
// result may still be too long.
func waitingText(w *runner.WaitProgress, now time.Time, width int) string {
	text := ""
	for commandWidth := 40; commandWidth >= 0; commandWidth-- {
		text = waitingLine(w, now, commandWidth)
		if width == 0 || Width(text) <= width {
			break
		}
	}
	return text
}

// waitingLine says why a run waits. It shows at most commandWidth characters of the command.
func waitingLine(w *runner.WaitProgress, now time.Time, commandWidth int) string {
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
		fact := "held by " + holderText(w.Holders[0], now, commandWidth)
		if len(w.Holders) > 1 {
			fact += fmt.Sprintf(" and %d more", len(w.Holders)-1)
		}
		facts = append(facts, fact)
	}
	if w.Until.Sub(now) >= time.Second { // in the last second it is about to say that it has given up
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

// holderText says briefly who holds the slot, and for how long.
func holderText(e locks.Entry, now time.Time, commandWidth int) string {
	text := e.Who(commandWidth)
	switch {
	case e.Ended:
		return text + " until " + locks.ClockTime(e.HeldTill) + ", which has ended"
	case e.Evicted != "":
		text += ", evicted,"
	}
	if e.HasAge && !e.HasNoProcess() {
		text += " for " + spanText(now.Sub(e.Since))
	}
	return text + e.NoteText()
}

// spanText writes a duration for people, in its two largest units.
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

// Live rewrites the line of progress on a terminal, or removes it if text is empty. In the
// background it writes no line, because the terminal belongs to the foreground job.
func (p *Printer) Live(text string) {
	if text == "" {
		if p.isDrawn {
			p.isDrawn = false
			p.write([]byte(clearLine))
		}
		return
	}
	foregroundGroup, err := unix.IoctlGetInt(unix.Stderr, unix.TIOCGPGRP)
	p.isDrawn = err == nil && foregroundGroup == unix.Getpgrp()
	if p.isDrawn {
		p.write([]byte(clearLine + Cut(text, max(ScreenOf(unix.Stderr).Columns-1, 1))))
	}
}
