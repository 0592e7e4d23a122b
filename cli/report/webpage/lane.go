package webpage

import (
	"cmp"
	"slices"
	"strings"

	"golock/cli/report"
	"golock/locks"
)

// lane is the time line of a lock on a host.
type lane struct {
	Name     string // "" if the lane above is of the same lock
	Host     string
	Store    string // "" if all runs are of one store
	Height   int
	IsFirst  bool // of its lock
	Bars     []*bar
	Overfull int // runs that share the last row, because too many are there at a time

	name, store string
	rows        []*row
}

// row is a line of a lane. No run covers another one in it, unless the lane is overfull.
type row struct {
	end  float64 // where the last run ends, as a share of the width
	last *bar    // the last run, if its label has found no place yet
	run  *run
}

// bar is a run in a window: it waits, runs, and a mark says how it ended. Y is in pixels, all other
// positions are percents of the width.
type bar struct {
	About    string
	Wait     *part
	Run      *part
	RunClass string // "r" with a slot, "u" without one; and "f" if the run did not end well
	Mark     string // the ID of the mark; "" if the command ran and the exit code is 0
	MarkX    string
	MarkY    int
	Label    string // behind whom the run waited; "" if there is no room
	LabelX   string
	LabelY   int
}

type part struct {
	X, Width string
	Y        int
}

const (
	rowHeight = 16
	barTop    = 3
	rowLimit  = 24  // rows of a lane
	leastRow  = 1.4 // the room of a mark, as a share of the width
	// A character of a label takes as much of the width of a screen that is 1400 pixels wide.
	characterShare = 0.58
	leastLabel     = 12
	labelLimit     = 60
)

// fill draws the runs of a window.
func (p *Page) fill(w *window, hasStores bool) {
	p.axis(w)
	layout := "15:04:05"
	if w.to-w.from > daily {
		layout = "2 Jan 15:04:05"
	}
	type place struct{ name, store, host string }
	lanes := map[place]*lane{}
	for _, r := range w.runs { // in the order of their beginnings
		key := place{r.name, r.store, r.host}
		l := lanes[key]
		if l == nil {
			l = &lane{Host: r.host, name: r.name, store: r.store}
			lanes[key] = l
			w.Lanes = append(w.Lanes, l)
		}
		l.add(w, r, p.about(r, layout))
	}
	for _, l := range w.Lanes {
		for i, row := range l.rows {
			row.label(100, i)
		}
	}
	slices.SortStableFunc(w.Lanes, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.store, b.store), cmp.Compare(a.Host, b.Host))
	})
	for i, l := range w.Lanes {
		l.Height = len(l.rows) * rowHeight
		l.IsFirst = i == 0 || w.Lanes[i-1].name != l.name || w.Lanes[i-1].store != l.store
		if l.IsFirst {
			l.Name = l.name
		}
		if l.IsFirst && hasStores {
			l.Store = l.store
		}
	}
	w.runs = nil
}

// add draws a run in the first row in which it covers no other one, beyond the limit in the last row.
func (l *lane) add(w *window, r *run, about string) {
	from, to := w.share(r.begin), max(w.share(r.end), w.share(r.begin)+leastRow)
	if r.kind != report.OK {
		to = max(to, w.share(r.end)+leastRow/2)
	}
	n := slices.IndexFunc(l.rows, func(row *row) bool { return row.end <= from })
	switch {
	case n < 0 && len(l.rows) < rowLimit:
		l.rows = append(l.rows, &row{})
		n = len(l.rows) - 1
	case n < 0:
		l.Overfull++
		n = rowLimit - 1
	}
	b := newBar(w, r, n, about)
	l.Bars = append(l.Bars, b)
	row := l.rows[n]
	row.label(from, n)
	row.end, row.last, row.run = max(row.end, to), nil, r
	if r.behind != "" && (b.Wait == nil || !b.labelWithin(w, r, n)) {
		row.last = b
	}
}

func newBar(w *window, r *run, row int, about string) *bar {
	top := row*rowHeight + barTop
	b := &bar{About: about}
	if r.granted > w.from && r.granted-r.begin >= (w.to-w.from)/2000 {
		b.Wait = newPart(w, r.begin, r.granted, top)
	}
	if r.started && r.granted < w.to {
		b.Run = newPart(w, r.granted, r.end, top)
		b.RunClass = "r"
		if r.withoutSlot {
			b.RunClass = "u"
		}
		if r.kind != report.OK && r.kind != report.Unlocked {
			b.RunClass += " f"
		}
	}
	if r.kind != report.OK && r.end <= w.to {
		b.Mark, b.MarkX, b.MarkY = markID(r.kind), w.x(r.end), row*rowHeight+rowHeight/2
	}
	return b
}

func newPart(w *window, from, to float64, top int) *part {
	return &part{X: w.x(from), Width: percent(w.share(to) - w.share(from)), Y: top}
}

// labelWithin writes into the bar of a waiter whom it waited for, if there is room.
func (b *bar) labelWithin(w *window, r *run, n int) bool {
	return b.label(r, w.share(max(r.begin, w.from)), w.share(r.granted), n)
}

// label writes behind the last run of a row whom it waited for, if there is room up to the next run.
func (o *row) label(next float64, n int) {
	if o.last != nil {
		o.last.label(o.run, o.end+0.3, next, n)
		o.last = nil
	}
}

// label writes whom a run waited for between two places of a row, if there is room.
func (b *bar) label(r *run, from, to float64, n int) bool {
	room := int((to - from) / characterShare)
	if room < leastLabel {
		return false
	}
	b.Label = locks.Printable(r.behindText(), min(room-1, labelLimit))
	b.LabelX, b.LabelY = percent(from+0.2), n*rowHeight+barTop+9
	return true
}

// mark is a sign for a kind of runs.
type mark struct{ ID, Text string }

// marks are all signs with their meaning. Their drawings are in the template.
func marks() []mark {
	all := []mark{
		{markID(report.Failed), "failed: exit code other than 0"}, {markID(report.TimeLimit), "stopped at its time limit"},
		{markID(report.Lost), "lost its slot"}, {markID(report.Skipped), "skipped: no slot in time"},
		{markID(report.Unavailable), "store unavailable"}, {markID(report.Unlocked), "ran without a slot"},
		{markID(report.Interrupted), "stopped while it waited"},
	}
	return all
}

func markID(kind report.Kind) string { return strings.ReplaceAll(string(kind), " ", "-") }

// listed is a run in a list.
type listed struct{ Begin, Name, Host, Waited, Behind, Result, Mark, Note, Command string }

func (p *Page) list(r *run) listed {
	l := listed{
		Begin: p.stamp(r.begin), Name: r.name, Host: r.host, Waited: report.Span(r.granted - r.begin), Behind: r.behindCell(),
		Result: r.result, Note: r.note, Command: r.command,
	}
	if r.kind != report.OK {
		l.Mark = markID(r.kind)
	}
	if r.started {
		l.Result += " after " + report.Span(r.end-r.granted)
	}
	return l
}

// longestWaits lists the runs that waited longest, a second at least.
func (p *Page) longestWaits() (all []listed) {
	byWait := slices.Clone(p.runs)
	slices.SortStableFunc(byWait, func(a, b *run) int { return cmp.Compare(b.granted-b.begin, a.granted-a.begin) })
	for _, r := range byWait[:min(len(byWait), waitsShown)] {
		if r.granted-r.begin < 1 {
			break
		}
		all = append(all, p.list(r))
	}
	return all
}

// troubles lists the last runs that did not end well, in the order of the time lines, and counts those that are not
// listed.
func (p *Page) troubles() (all []listed, more int) {
	for _, r := range slices.Backward(p.runs) {
		if r.kind == report.OK {
			continue
		}
		if len(all) == troublesShown {
			more++
			continue
		}
		all = append(all, p.list(r))
	}
	slices.Reverse(all)
	return all, more
}
