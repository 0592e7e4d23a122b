package cli

import (
	"fmt"
	"strings"
	"time"

	"golock/cli/check"
)

// progress draws the progress line.
func (t *strengthTest) progress(done, of int) {
	t.out.Write(fmt.Appendf(nil, "\r\x1b[Kgolock: %d of %d runs, %v", done, of, time.Since(t.began).Round(time.Second)))
}

// text is the report for people.
func (t *strengthTest) text(r *check.Report) string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("tested", "%s", t.what)
	killed := ""
	if t.test.Kill > 0 {
		killed = fmt.Sprintf("; %d killed, others did their work", r.Killed)
	}
	line("children", "%d, %d at a time%s; %.1f s", r.Loops, t.test.Children, killed, r.Seconds)
	line("inside", "at most %d at the same time; the limit is %d", r.MaxConcurrent, r.Limit)
	switch {
	case r.Uncounted:
		line("counter", "none: the tool gives no slot numbers")
	default:
		line("counter", "%d after %d children, %d lost", r.Counter, r.Loops, r.LostUpdates)
	}
	switch {
	case r.OrderInversions == nil:
		line("order", "not promised")
	default:
		line("order", "%d of %d overtook a child that had waited before them", *r.OrderInversions, r.Ranked)
	}
	if r.HandOff != (check.Times{}) {
		line("hand-off", "median %s, 99 of 100 within %s, longest %s (from the end of one child to the start of the next)", ms(r.HandOff.P50), ms(r.HandOff.P99), ms(r.HandOff.Max))
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

// ms writes milliseconds with at least three digits.
func ms(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.3g ms", v)
}
