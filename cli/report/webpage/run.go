package webpage

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"golock/cli/report"
	"golock/locks"
)

// These constants limit how many characters of a text the page shows.
const (
	nameLimit    = 60
	storeLimit   = 60
	hostLimit    = 40
	commandLimit = 60
	noteLimit    = 200
	heldByLimit  = 40 // the command of a holder that a run waited for
	behindLimit  = 80 // characters of the holders that a run waited for, in its tooltip
	briefLimit   = 28 // characters of a run's command or note, in its tooltip
)

// run is a line of a report, as far as the page shows it. Times are in seconds since 1970.
type run struct {
	name, store, host   string
	id                  string
	begin, granted, end float64 // when the run asked for the slot, when it got the slot or stopped waiting, when it ended
	started             bool
	withoutSlot         bool
	kind                report.Kind
	result              string
	user                string
	pid                 int
	command, note       string
	behind              string // who held the slot while the run waited, or when it was turned away; "" if that is not known
	behindID            string // shortID of the first holder that the report names
	isBehindFirst       bool   // behind does not cover the whole wait: later, others may have held the slot
	hadSlot             bool
}

// waited is how long the run waited, in seconds.
func (r *run) waited() float64 { return r.granted - r.begin }

func (p *Page) newRun(l *report.Line) *run {
	r := &run{
		name: p.shorten(l.Name, nameLimit), store: p.shorten(l.Store, storeLimit), host: p.shorten(l.Host, hostLimit), id: shortID(l.ID),
		begin: l.Begin(), started: l.Started(), withoutSlot: l.WithoutSlot(), kind: l.Kind(), result: p.shorten(l.Result(), nameLimit),
		user: p.shorten(l.User, hostLimit), pid: l.PID, command: p.shorten(strings.Join(firstWords(l.Command), " "), commandLimit),
		note: p.shorten(l.Note, noteLimit),
	}
	r.hadSlot = !r.withoutSlot && (r.started || len(l.Slots) > 0)
	r.granted = r.begin + clamped(l.Waited)
	r.end = r.granted + clamped(l.Ran)
	if len(l.WaitedFor) > 0 {
		r.behind, r.behindID = p.shorten(behindWhom(l.WaitedFor), noteLimit), shortID(l.WaitedFor[0].ID)
	}
	return r
}

// firstWords returns the beginning of a command, which may have two MiB.
func firstWords(command []string) []string {
	words := command[:min(len(command), commandLimit)]
	short := make([]string, len(words))
	for i, word := range words {
		short[i] = word[:min(len(word), 4*commandLimit)]
	}
	return short
}

// shortID is the part of an ID that differs between entries of a name.
func shortID(id string) string {
	if _, unique, found := strings.Cut(id, "-"); found && len(unique) <= 32 {
		return unique
	}
	return ""
}

// clamped returns a time that can be drawn, whatever a report says: from 0 to 100 years, in seconds.
func clamped(seconds float64) float64 {
	const century = 100 * 365 * 24 * 60 * 60
	return min(max(seconds, 0), century)
}

// shorten shortens a text and replaces its control characters. Equal texts share memory.
func (p *Page) shorten(text string, limit int) string {
	short := printable(text[:min(len(text), 4*limit+8)], limit)
	if shared, known := p.texts[short]; known {
		return shared
	}
	if len(p.texts) < drawnLimit {
		p.texts[short] = short
	}
	return short
}

func printable(text string, limit int) string {
	return locks.Printable(strings.ToValidUTF8(text, "\ufffd"), limit)
}

// behindWhom names the first holder, and how many there were.
func behindWhom(holders []report.Holder) string {
	h := holders[0]
	process := "a process"
	if h.PID > 0 {
		process = fmt.Sprintf("PID %d", h.PID)
	}
	if h.User != "" {
		process += " of " + printable(h.User, hostLimit)
	}
	text := process
	switch {
	case h.Unkept: // no command is known
		text = printable(cmp.Or(h.User, "a slot"), hostLimit)
	case len(h.Command) > 0:
		text = printable(strings.Join(firstWords(h.Command), " "), heldByLimit)
	}
	if h.Host != "" {
		text += " on " + printable(h.Host, hostLimit)
	}
	switch {
	case h.Unkept:
		text += " without a process"
	case len(h.Command) > 0:
		text += " (" + process + ")"
	}
	if h.Note != "" {
		text += ": " + printable(h.Note, commandLimit)
	}
	if more := len(holders) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func timeOf(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

// stamp writes an instant with its date.
func (p *Page) stamp(seconds float64) string { return p.format(seconds, "2006-01-02 15:04:05") }

func (p *Page) format(seconds float64, layout string) string {
	return timeOf(seconds).In(p.now.Location()).Format(layout)
}

// about returns the tooltip of a run. layout is how it writes the time. On a page with more than detailLimit runs it has no note and no
// command.
func (p *Page) about(r *run, layout string) string {
	var b strings.Builder
	b.WriteString(p.format(r.begin, layout))
	if r.waited() >= 1 || r.behind != "" {
		b.WriteString(" waited " + report.Span(r.waited()))
	}
	if r.behind != "" {
		b.WriteString(" " + locks.Printable(r.behindText(), behindLimit))
	}
	if r.started {
		b.WriteString(", ran " + report.Span(r.end-r.granted))
	}
	b.WriteString(": " + r.result)
	if len(p.runs) > detailLimit {
		return b.String()
	}
	if r.note != "" {
		b.WriteString("; " + locks.Printable(r.note, briefLimit))
	}
	if r.command != "" {
		fmt.Fprintf(&b, " [%d %s]", r.pid, locks.Printable(r.command, briefLimit))
	}
	return b.String()
}
