package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"golock/check"
)

// progress draws the line that tells how far a check has come.
func (t *checking) progress(done, of int) {
	t.out.write(fmt.Appendf(nil, "\r\x1b[Kgolock: %d of %d runs, %v", done, of, time.Since(t.began).Round(time.Second)))
}

// text is the report for people; on a terminal it has a picture of the
// hand-offs.
func (t *checking) text(r *check.Report) string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("tested", "%s", t.what)
	killed := ""
	if t.test.Kill > 0 {
		killed = fmt.Sprintf("; %d killed on the way, and what they had not done was done by others", r.Killed)
	}
	line("children", "%d, %d at a time%s; %.1f s", r.Loops, t.test.Children, killed, r.Seconds)
	line("inside", "at most %d at the same time; the limit is %d", r.MaxConcurrent, r.Limit)
	switch {
	case r.Uncounted:
		line("counter", "none: the tool gives no slot numbers, so nobody has one to himself")
	default:
		line("counter", "%d after %d children, %d lost", r.Counter, r.Loops, r.LostUpdates)
	}
	switch {
	case r.OrderInversions == nil:
		line("order", "not promised")
	default:
		line("order", "%d of %d were let in before one that had waited when they began", *r.OrderInversions, r.Ranked)
	}
	if r.HandOffs() > 0 {
		line("hand-off", "median %s, 99 of 100 within %s, longest %s (from the end of one child to the start of the next)", ms(r.HandOff.P50), ms(r.HandOff.P99), ms(r.HandOff.Max))
	}
	if isTerminal(1) {
		for _, bar := range r.Histogram(terminalWidth(1)) {
			fmt.Fprintln(&b, bar)
		}
	}
	if r.Passed {
		line("passed", "it excludes: never more than %d inside%s", r.Limit, map[bool]string{true: "", false: ", and no update was lost"}[r.Uncounted])
		return b.String()
	}
	for i, p := range r.Problems {
		label := "FAILED"
		if i > 0 {
			label = ""
		}
		line(label, "%s", p)
	}
	return b.String()
}

// ms writes milliseconds with three digits at least.
func ms(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.3g ms", v)
}

// isTerminal reports whether a descriptor is one.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// terminalWidth is the number of its columns.
func terminalWidth(fd int) int {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
