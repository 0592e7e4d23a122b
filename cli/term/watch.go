package term

import (
	"fmt"
	"strings"
	"time"

	"golock/locks"
)

// Watch shows the entries of a store again and again: on a terminal a table that
// is redrawn in place; elsewhere, and as JSON, a table whenever it has changed.
type Watch struct {
	Out      *Printer
	Name     string // of the lock; "": all
	URL      string // of the store
	Interval time.Duration
	JSON     bool

	seen   string // what was written last, without the rests of leases
	failed error  // the last one, which was printed
}

// Show gives what is to be written of entries, and of the error that ended the list.
func (w *Watch) Show(rows []Row, failed error) string {
	if size := ScreenOf(1); size.Columns > 0 && !w.JSON {
		return w.draw(rows, failed, size)
	}
	return w.report(rows, failed)
}

// draw fills the terminal from its upper left corner.
func (w *Watch) draw(rows []Row, failed error, size Screen) string {
	what := "every lock"
	if w.Name != "" {
		what = locks.Printable(w.Name, NameLimit)
	}
	head := fmt.Sprintf("%s  %s, every %v: %s in %s", time.Now().Format(time.TimeOnly), totals(rows), w.Interval, what, w.URL)
	lines := append([]string{head, ""}, Table(rows, size.Columns)...)
	if failed != nil {
		lines = append(lines, "golock: "+locks.Printable(failed.Error(), 400))
	}
	if room := max(size.Rows-1, 1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… and %d more", more))
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString("\x1b[2K" + Cut(line, size.Columns) + "\n")
	}
	return b.String() + "\x1b[J"
}

// totals counts holders and waiters.
func totals(rows []Row) string {
	waiting := 0
	for _, e := range rows {
		if e.State == locks.Waiting {
			waiting++
		}
	}
	return fmt.Sprintf("%d holding, %d waiting", len(rows)-waiting, waiting)
}

// report gives the table if it has changed, and prints a failure once.
func (w *Watch) report(rows []Row, failed error) string {
	if failed != nil && fmt.Sprint(failed) != fmt.Sprint(w.failed) {
		w.Out.Warn(failed.Error())
	}
	w.failed = failed
	if failed != nil && len(rows) == 0 {
		return "" // nothing is known
	}
	seen := fmt.Sprint(len(rows))
	for _, row := range rows { // without what changes from look to look
		row.Expires, row.HeldTill = nil, ""
		row.entry = locks.Entry{Ended: row.entry.Ended, Evicted: row.entry.Evicted}
		seen += fmt.Sprintf("%+v", row)
	}
	if seen == w.seen {
		return ""
	}
	w.seen = seen
	if w.JSON {
		return JSONText(rows, "  ")
	}
	lines := append([]string{time.Now().Format(time.RFC3339)}, Table(rows, 0)...)
	if len(rows) == 0 {
		lines = append(lines, totals(rows))
	}
	return strings.Join(lines, "\n") + "\n\n"
}
