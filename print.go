package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

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
type printer struct {
	fd      int
	json    bool
	verbose bool
	quiet   bool
}

func newPrinter(fd int) *printer { return &printer{fd: fd} }

// patience is how long a line may wait for its reader.
const patience = 100 * time.Millisecond

// step tells what golock does, if the user asked for it.
func (p *printer) step(message string, pairs ...any) {
	if p.verbose {
		p.line("info", message, pairs)
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
	p.line("error", err.Error(), nil)
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
	if p.json {
		fmt.Fprintf(&b, `{"time":%s,"level":%q,"msg":%s`, asJSON(time.Now().Format(time.RFC3339Nano)), level, asJSON(message))
		for i := 0; i+1 < len(pairs); i += 2 {
			fmt.Fprintf(&b, `,%s:%s`, asJSON(pairs[i]), asJSON(plain(pairs[i+1])))
		}
		b.WriteByte('}')
	} else {
		b.WriteString("golock: ")
		if level == "warning" {
			b.WriteString("warning: ")
		}
		b.WriteString(locks.Printable(message, 4000))
		for i := 0; i+1 < len(pairs); i += 2 {
			fmt.Fprintf(&b, " %v=%s", pairs[i], locks.Printable(fmt.Sprint(plain(pairs[i+1])), 400))
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
	return string(text)
}

func (p *printer) write(b []byte) {
	ready := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLOUT}}
	for until := time.Now().Add(patience); ; {
		n, err := unix.Poll(ready, int(max(time.Until(until).Milliseconds(), 0)))
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			return
		}
		break
	}
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
}
