package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"golock/locks"
)

// printer writes all that golock says about itself. Its rules: standard error
// only, one line for each message, the prefix "golock: ", lower case, no full
// stop; nothing on success unless asked. Standard output belongs to the command
// (and to ls, version and --help).
//
// Saying something must never keep a slot or a command waiting: a line that
// nobody takes within a moment is dropped, and so is an error of writing.
// A printer belongs to the main goroutine.
type printer struct {
	fd      int
	json    bool
	verbose bool
	quiet   bool
	drawn   bool          // a line stands on the terminal that is to be removed before anything else
	stuck   chan struct{} // closed when a line that was given up on has been taken; nil: none was
}

func newPrinter(fd int) *printer { return &printer{fd: fd} }

// patience is how long a line may wait for its reader.
const patience = 100 * time.Millisecond

// step tells what golock does, and when, if the user asked for it.
func (p *printer) step(message string, pairs ...any) {
	if p.verbose {
		p.line("step", message, pairs)
	}
}

// say tells something that went well, which the user asked to be told of by
// asking for it to be done.
func (p *printer) say(message string) {
	if !p.quiet {
		p.line("info", message, nil)
	}
}

// warn tells of something that went wrong and does not change the outcome.
func (p *printer) warn(message string, pairs ...any) {
	if !p.quiet {
		p.line("warning", message, pairs)
	}
}

// fail tells why golock ends.
func (p *printer) fail(err error) {
	for line := range strings.Lines(err.Error()) { // several, if several went wrong
		p.line("error", strings.TrimRight(line, "\n"), nil)
	}
	if fault, ok := err.(*locks.PanicError); ok {
		for line := range strings.Lines(string(fault.Stack)) {
			p.line("error", strings.TrimRight(line, "\n"), nil)
		}
	}
}

// exit tells an error and gives its exit code.
func (p *printer) exit(err error) int {
	p.fail(err)
	return codeOf(err)
}

// line writes one message with its pairs of name and value.
func (p *printer) line(level, message string, pairs []any) {
	var b strings.Builder
	if p.drawn {
		p.drawn = false
		b.WriteString(clearLine)
	}
	now := time.Now()
	message = withoutPasswords(message)
	if p.json {
		if level == "step" {
			level = "info"
		}
		fmt.Fprintf(&b, `{"time":%s,"level":%q,"msg":%s`, asJSON(now.Format(time.RFC3339Nano)), level, asJSON(message))
		for i := 0; i+1 < len(pairs); i += 2 {
			value := plain(pairs[i+1])
			if text, ok := value.(string); ok {
				value = withoutPasswords(text)
			}
			if d, ok := pairs[i+1].(time.Duration); ok {
				value = seconds(d)
			}
			fmt.Fprintf(&b, `,%s:%s`, asJSON(pairs[i]), asJSON(value))
		}
		b.WriteByte('}')
	} else {
		b.WriteString("golock: ")
		switch level {
		case "step":
			b.WriteString(now.Format("15:04:05.000 "))
		case "warning":
			b.WriteString("warning: ")
		}
		b.WriteString(locks.Printable(message, 4000))
		for i := 0; i+1 < len(pairs); i += 2 {
			fmt.Fprintf(&b, " %v=%s", pairs[i], quoted(locks.Printable(withoutPasswords(fmt.Sprint(plain(pairs[i+1]))), 400)))
		}
	}
	b.WriteByte('\n')
	p.write([]byte(b.String()))
}

// plain turns values of Go into what a reader or a parser of logs expects.
func plain(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return v.Round(time.Microsecond).String()
	case error:
		return v.Error()
	}
	return v
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		text, _ = json.Marshal(fmt.Sprint(v))
	}
	return string(harmless(text))
}

// harmless writes characters that steer a terminal as escapes in a JSON text:
// what others have called themselves is looked at with cat, too. The library
// does so only with those below the space, which have other uses between values.
func harmless(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r > ' ' && locks.Steers(r) }) {
		return text
	}
	var b []byte
	for _, r := range string(text) {
		if r > ' ' && locks.Steers(r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// writeJSON writes a value for users and their programs.
func writeJSON(to io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := to.Write(harmless(b.Bytes()))
	return err
}

// withoutPasswords takes the password out of a URL in a line of golock's: one
// that was put where something else belongs is repeated by the message that says
// so.
func withoutPasswords(text string) string {
	const mark = "://"
	begin := 0
	for {
		i := strings.Index(text[begin:], mark)
		if i < 0 {
			return text
		}
		begin += i + len(mark)
		word := text[begin:]
		if end := strings.IndexAny(word, " \t\n\"'`<>()"); end >= 0 {
			word = word[:end]
		}
		login := word[:max(strings.LastIndexByte(word, '@'), 0)]
		if user, password, found := strings.Cut(login, ":"); found && password != "" {
			text = text[:begin] + user + ":…" + text[begin+len(login):]
		}
	}
}

// write gives up on a line that nobody takes; until somebody does, those that
// follow are dropped.
func (p *printer) write(b []byte) {
	if p.stuck != nil {
		select {
		case <-p.stuck:
			p.stuck = nil
		default:
			return
		}
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for len(b) > 0 {
			n, err := unix.Write(p.fd, b)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return
			}
			b = b[n:]
		}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
		p.stuck = written
	}
}

// quoted is a value in a line of text: what has spaces in it is put in quotes.
func quoted(text string) string {
	if strings.ContainsAny(text, " \"=") {
		return strconv.Quote(text)
	}
	return text
}
