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

// Printer writes what golock says about itself to standard error: one line for each message, with
// the prefix "golock: ".
//
// Printing must never delay a slot or a command, so a Printer drops a line that nobody reads within
// patience. A Printer belongs to the main goroutine.
type Printer struct {
	JSON    bool
	Verbose bool
	Quiet   bool
	Request *locks.Request // the run that the lines are about; nil if they are about none
	isDrawn bool           // the progress line is on the terminal
	stuck   chan error     // gets nil, or a panic, when a line that was given up has been written; nil if no line was given up
}

// patience is the time that a line waits for its reader.
const patience = 100 * time.Millisecond

// maxPatience limits how often write waits for patience while the descriptor has room: then the machine is too
// busy to run the goroutine that writes.
const maxPatience = 10

// Step prints, with -v, what golock does and when.
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

// Fail prints the error with which golock ends.
func (p *Printer) Fail(err error) {
	text := err.Error() // joined errors are one line each
	if fault, ok := err.(*locks.PanicError); ok {
		text += "\n" + string(fault.Stack)
	}
	for line := range strings.Lines(text) {
		p.Line("error", strings.TrimRight(line, "\n"), p.busyPairs(err))
	}
}

// Skip prints a skipped run as a step: it got no slot in time, and -E 0 makes that a success.
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

// busyPairs returns who uses a busy lock as pairs, for programs that read the log. It returns nil for other errors.
func (p *Printer) busyPairs(err error) []any {
	var busy *locks.BusyError
	if !p.JSON || !errors.As(err, &busy) {
		return nil
	}
	return []any{"holders", Rows(busy.Holders), "waiters", busy.Waiters, "queue_full", busy.Full}
}

// Line prints a message with pairs of a name and a value.
func (p *Printer) Line(level, message string, pairs []any) {
	p.Live("")
	p.write([]byte(p.Text(level, message, pairs)))
}

// Text returns the line that Line prints, with its line feed.
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
	isOfRun := p.Request != nil && p.Request.Name != ""
	if isOfRun { // each line about a run has these members
		fmt.Fprintf(&b, `,"name":%s,"id":%q`, JSON(p.Request.Name), p.Request.Ref.String())
		if p.Request.Note != "" {
			fmt.Fprintf(&b, `,"note":%s`, JSON(p.Request.Note))
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if isOfRun && pairs[i] == "id" {
			continue
		}
		fmt.Fprintf(&b, `,%s:%s`, JSON(pairs[i]), JSON(p.LogValue(pairs[i+1])))
	}
	return withoutPasswords(b.String()) + "}"
}

// LogValue returns a value in the form in which the log shows it, in text or JSON.
func (p *Printer) LogValue(v any) any {
	switch v := v.(type) {
	case time.Duration:
		if p.JSON {
			return Seconds(v)
		}
		return v.Round(time.Microsecond).String()
	case []int:
		if !p.JSON { // the form of GOLOCK_SLOTS
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

// JSON returns a value as JSON on one line.
func JSON(v any) string { return strings.TrimSuffix(JSONText(v, ""), "\n") }

// JSONText returns a value as JSON, with a line feed at its end. It escapes all characters that
// steer a terminal, because people look at JSON with cat. The library escapes only those below the
// space.
func JSONText(v any, indent string) string { return jsonText(v, "", indent) }

// jsonText does what JSONText does, and puts a prefix before each line but the first.
func jsonText(v any, prefix, indent string) string {
	var text, safe strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent(prefix, indent)
	_ = enc.Encode(v) // every value here can be encoded
	for _, r := range text.String() {
		if r > ' ' && locks.IsTerminalControl(r) {
			fmt.Fprintf(&safe, `\u%04x`, r)
		} else {
			safe.WriteRune(r)
		}
	}
	return safe.String()
}

// withoutPasswords removes passwords from URLs. A message may repeat a URL that the user has put
// into the wrong place.
func withoutPasswords(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	word := rest
	if end := strings.IndexAny(rest, " \t\n\"'`<>()"); end >= 0 {
		word = rest[:end]
	}
	end := max(strings.LastIndexByte(word, '@'), 0) // the end of user and password
	user, password, _ := strings.Cut(word[:end], ":")
	if password != "" {
		rest = user + ":…" + rest[end:]
	}
	return scheme + "://" + withoutPasswords(rest)
}

// write writes text to standard error. It gives up on text that nobody reads within patience, and
// drops all further text until that text has been read.
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
		writeAll(unix.Stderr, b)
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

// writeAll writes text to a descriptor. It drops the rest of the text after an error.
func writeAll(fd int, b []byte) {
	for len(b) > 0 {
		n, err := eintr.Get(func() (int, error) { return unix.Write(fd, b) })
		if err == unix.EPERM || err == unix.ENOSYS { // a seccomp profile may refuse write(2) and allow writev(2)
			n, err = eintr.Get(func() (int, error) { return unix.Writev(fd, [][]byte{b}) })
		}
		if err != nil {
			return
		}
		b = b[n:]
	}
}

// hasRoom reports whether a descriptor takes text without waiting for its reader. If it does, a line
// that is not written yet waits for a CPU, not for the reader.
func hasRoom(fd int) bool {
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, _ := unix.Poll(ready, 0)
	return n > 0
}

// raise repeats a panic of another goroutine in the goroutine of the caller, which releases what it
// holds.
func raise(fault error) {
	if fault != nil {
		panic(fault)
	}
}

// quoted quotes a value that contains a space, a quote or an equals sign.
func quoted(text string) string {
	if strings.ContainsAny(text, " \"=") {
		return strconv.Quote(text)
	}
	return text
}

// Log prints a warning if warn is set, else a step.
func (p *Printer) Log(warn bool, message string, pairs ...any) {
	if warn {
		p.Warn(message, pairs...)
	} else {
		p.Step(message, pairs...)
	}
}

// Seconds converts a duration to the unit of JSON output.
func Seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

// clearLine moves the cursor to the beginning of the line and clears the line.
const clearLine = "\r\x1b[K"

// Screen is the size of a terminal in characters. It is zero if there is no terminal.
type Screen struct{ Columns, Rows int }

// ScreenOf returns the size of the terminal behind a descriptor. A terminal that does not know its
// size counts as 80 by 24.
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
