package term

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/internal/eintr"
	"golock/locks"
)

// Printer writes what golock says about itself: on standard error, one line for
// each message, with the prefix "golock: ".
//
// Printing must never delay a slot or a command: a line that nobody reads within
// patience is dropped. A Printer belongs to the main goroutine.
type Printer struct {
	JSON    bool
	Verbose bool
	Quiet   bool
	Request *locks.Request // of the run that the lines are about; nil: of none
	drawn   bool           // the progress line is on the terminal
	stuck   chan error     // gets the end of a line that was given up: nil, or a panic; nil: there is none
}

// patience is how long a line waits for its reader.
const patience = 100 * time.Millisecond

// maxPatience is how often in a row a line waits for so long on a machine that is too busy to write it.
const maxPatience = 10

// Step prints what golock does, and when, with -v.
func (p *Printer) Step(message string, pairs ...any) {
	if p.Verbose {
		p.Line("step", message, pairs)
	}
}

// Say prints the effect of a flag, such as whom --replace replaced.
func (p *Printer) Say(message string) {
	if !p.Quiet {
		p.Line("info", message, nil)
	}
}

// Warn prints a problem that does not change the outcome.
func (p *Printer) Warn(message string, pairs ...any) {
	if !p.Quiet {
		p.Line("warning", message, pairs)
	}
}

// Fail prints why golock ends.
func (p *Printer) Fail(err error) {
	text := err.Error() // of joined errors a line each
	if fault, ok := err.(*locks.PanicError); ok {
		text += "\n" + string(fault.Stack)
	}
	for line := range strings.Lines(text) {
		p.Line("error", strings.TrimRight(line, "\n"), p.whoIsBusy(err))
	}
}

// Skip prints, as a step, why there was no slot in time where that is a success.
func (p *Printer) Skip(err error) {
	busy, isBusy := errors.AsType[*locks.BusyError](err)
	switch {
	case !p.JSON:
		p.Step(err.Error())
	case isBusy:
		p.Step("skipped", "error", err, "holders", Rows(busy.Holders), "waiters", busy.Waiters, "queue_full", busy.Full)
	default:
		p.Step("skipped", "error", err)
	}
}

// whoIsBusy gives programs the facts in the message of a busy lock.
func (p *Printer) whoIsBusy(err error) []any {
	var busy *locks.BusyError
	if !p.JSON || !errors.As(err, &busy) {
		return nil
	}
	return []any{"holders", Rows(busy.Holders), "waiters", busy.Waiters, "queue_full", busy.Full}
}

// Line prints a message with pairs of name and value.
func (p *Printer) Line(level, message string, pairs []any) {
	p.Live("")
	p.write([]byte(p.Text(level, message, pairs)))
}

// Text gives the line that Line prints, with its line feed.
func (p *Printer) Text(level, message string, pairs []any) string {
	if p.JSON {
		return p.jsonLine(level, message, pairs) + "\n"
	}
	return p.textLine(level, message, pairs) + "\n"
}

func (p *Printer) textLine(level, message string, pairs []any) string {
	var b strings.Builder
	b.WriteString("golock: ")
	switch level {
	case "step":
		b.WriteString(time.Now().Format("15:04:05.000 "))
	case "warning":
		b.WriteString("warning: ")
	}
	b.WriteString(locks.Printable(withoutPasswords(message), 4000))
	for i := 0; i+1 < len(pairs); i += 2 {
		text := fmt.Sprint(p.LogValue(pairs[i+1]))
		fmt.Fprintf(&b, " %v=%s", pairs[i], quoted(locks.Printable(withoutPasswords(text), 400)))
	}
	return b.String()
}

func (p *Printer) jsonLine(level, message string, pairs []any) string {
	var b strings.Builder
	if level == "step" {
		level = "info"
	}
	fmt.Fprintf(&b, `{"time":%s,"level":%q,"msg":%s`, JSON(time.Now().Format(time.RFC3339Nano)), level, JSON(message))
	ofRun := p.Request != nil && p.Request.Name != ""
	if ofRun { // all its lines have these
		fmt.Fprintf(&b, `,"name":%s,"id":%q`, JSON(p.Request.Name), p.Request.Ref.String())
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if ofRun && pairs[i] == "id" {
			continue
		}
		fmt.Fprintf(&b, `,%s:%s`, JSON(pairs[i]), JSON(p.LogValue(pairs[i+1])))
	}
	return withoutPasswords(b.String()) + "}"
}

// LogValue gives a value as a log shows it.
func (p *Printer) LogValue(v any) any {
	switch v := v.(type) {
	case time.Duration:
		if p.JSON {
			return Seconds(v)
		}
		return v.Round(time.Microsecond).String()
	case []int:
		if !p.JSON { // as in GOLOCK_SLOTS
			return slotText(v)
		}
	case []string:
		if !p.JSON {
			return strings.Join(v, " ")
		}
	case error:
		return v.Error()
	}
	return v
}

// JSON is a value as JSON in one line.
func JSON(v any) string { return strings.TrimSuffix(JSONText(v, ""), "\n") }

// JSONText is a value as JSON, with a line feed at its end. Characters that steer a
// terminal are escaped: people look at it with cat. The library escapes only those below
// the space.
func JSONText(v any, indent string) string { return jsonText(v, "", indent) }

// jsonText is JSONText with a prefix before each line but the first.
func jsonText(v any, prefix, indent string) string {
	var text, safe strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent(prefix, indent)
	_ = enc.Encode(v) // every value is one that JSON has
	for _, r := range text.String() {
		if r > ' ' && locks.IsTerminalControl(r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.String()
}

// withoutPasswords takes passwords out of URLs. A URL in the wrong place is
// repeated by the message that says so.
func withoutPasswords(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	word := rest
	if end := strings.IndexAny(rest, " \t\n\"'`<>()"); end >= 0 {
		word = rest[:end]
	}
	at := max(strings.LastIndexByte(word, '@'), 0)
	if user, password, _ := strings.Cut(word[:at], ":"); password != "" {
		rest = user + ":…" + rest[at:]
	}
	return scheme + "://" + withoutPasswords(rest)
}

// write drops a line that nobody reads within patience, and all that follow until it is
// read.
func (p *Printer) write(b []byte) {
	if p.stuck != nil {
		select {
		case fault := <-p.stuck:
			p.stuck = nil
			raise(fault)
		default:
			return
		}
	}
	written := make(chan error, 1)
	go func() {
		var fault error
		defer func() { written <- fault }()
		defer locks.Recover(&fault)
		for len(b) > 0 {
			n, err := eintr.Get(func() (int, error) { return unix.Write(unix.Stderr, b) })
			if err == unix.EPERM || err == unix.ENOSYS { // a seccomp profile; writev(2) may be left
				n, err = eintr.Get(func() (int, error) { return unix.Writev(unix.Stderr, [][]byte{b}) })
			}
			if err != nil {
				return
			}
			b = b[n:]
		}
	}()
	for range maxPatience {
		select {
		case fault := <-written:
			raise(fault)
			return
		case <-time.After(patience):
		}
		if !hasRoom(unix.Stderr) {
			break
		}
	}
	p.stuck = written
}

// hasRoom reports whether a descriptor takes text without waiting for its reader. Then a line that is not
// written yet waits for a CPU.
func hasRoom(fd int) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, _ := unix.Poll(ready, 0)
	return n > 0
}

// raise continues a panic of another goroutine in the caller's, which gives back what it has.
func raise(fault error) {
	if fault != nil {
		panic(fault)
	}
}

// quoted puts a value with spaces in quotes.
func quoted(text string) string {
	if strings.ContainsAny(text, " \"=") {
		return strconv.Quote(text)
	}
	return text
}

// Log prints a warning or a step.
func (p *Printer) Log(warn bool, message string, pairs ...any) {
	if warn {
		p.Warn(message, pairs...)
	} else {
		p.Step(message, pairs...)
	}
}

// Seconds is a time as JSON has it.
func Seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// clearLine goes to the beginning of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// Screen is the size of a terminal in characters; zero: there is no terminal.
type Screen struct{ Columns, Rows int }

// ScreenOf gives the size of the terminal behind a descriptor, 80 by 24 if the
// terminal does not know it.
func ScreenOf(fd int) Screen {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return Screen{}
	case size.Col == 0 || size.Row == 0:
		return Screen{80, 24}
	}
	return Screen{int(size.Col), int(size.Row)}
}
