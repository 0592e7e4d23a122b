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
	IsFirst  bool // the lane is the first one of its lock
	Bars     []*bar
	Overfull int // the number of runs that are drawn over others in the last row, because the lane has no more rows

	name, store string
	rows        []*row
}

// row is a line of a lane. No run covers another one in it, unless the lane is overfull.
type row struct {
	end       float64 // where the last run ends, in percent of the width
	run       *run    // the last run
	unlabeled *bar    // the bar of the last run, if it still needs a label; otherwise nil
}

// bar is a run in a window: it waits, runs, and a mark says how it ended. Y is in pixels, all other
// positions are percents of the width.
type bar struct {
	About    string
	Wait     *part
	Run      *part
	RunClass string // classes of CSS: "r" with a slot, "u" without one; and "f" if the run did not end well
	Mark     string // the ID of the mark; "" if the command ran and the exit code is 0
	MarkX    string
	MarkY    int
	Label    string // behind whom the run waited; "" if there is no room
	LabelX   string
	LabelY   int
}

// part is the waiting or the running in a bar.
type part struct {
	X, Width string
	Y        int
}

const (
	rowHeight = 16
	barTop    = 3
	rowLimit  = 24  // rows of a lane
	markWidth = 1.4 // the room that a mark takes, in percent of the width
	// characterWidth is the width of a character of a label, in percent of a screen that is 1400 pixels wide.
	characterWidth = 0.58
	leastLabel     = 12 // characters: a shorter label says too little
	labelLimit     = 60 // characters
)

// fill draws the runs of a window.
func (p *Page) fill(w *window, hasStores bool) {
	p.axis(w)
	layout := "15:04:05"
	if w.to-w.from > day {
		layout = "2 Jan 15:04:05"
	}
	type laneKey struct{ name, store, host string }
	lanes := map[laneKey]*lane{}
	for _, r := range w.runs { // in the order of their beginnings
		key := laneKey{r.name, r.store, r.host}
		l := lanes[key]
		if l == nil {
			l = &lane{Host: r.host, name: r.name, store: r.store}
			lanes[key] = l
			w.Lanes = append(w.Lanes, l)
		}
		l.add(w, r, p.about(r, layout))
	}
	const rightEdge = 100.0
	for _, l := range w.Lanes {
		for i, row := range l.rows {
			row.labelLast(rightEdge, i)
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

// add draws a run in the first row in which it covers no other run. If there is none, it draws the run in
// a new row, or in the last row if the lane has rowLimit rows.
func (l *lane) add(w *window, r *run, about string) {
	from := w.share(r.begin)
	to := max(w.share(r.end), from+markWidth)
	if r.kind != report.OK { // the middle of the mark is at the end of the run
		to = max(to, w.share(r.end)+markWidth/2)
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
	row.labelLast(from, n)
	row.end, row.run = max(row.end, to), r
	if r.behind == "" {
		return
	}
	isLabeled := false
	if b.Wait != nil { // the label fits best into the part of the bar that shows the waiting
		isLabeled = b.label(r, w.share(max(r.begin, w.from)), w.share(r.granted), n)
	}
	if !isLabeled {
		row.unlabeled = b
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

// labelLast writes the missing label of the last run to the right of its bar, if there is room before next, the
// position of the next run. n is the number of the row.
func (o *row) labelLast(next float64, n int) {
	if o.unlabeled != nil {
		o.unlabeled.label(o.run, o.end+0.3, next, n)
		o.unlabeled = nil
	}
}

// label writes whom the run waited for into row n, from one position to another. It reports whether there
// is room.
func (b *bar) label(r *run, from, to float64, n int) bool {
	room := int((to - from) / characterWidth)
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

// listedRun is a run in a list.
type listedRun struct{ Begin, Name, Host, Waited, Behind, Result, Mark, Note, Command string }

func (p *Page) newListedRun(r *run) listedRun {
	l := listedRun{
		Begin: p.stamp(r.begin), Name: r.name, Host: r.host, Waited: report.Span(r.waited()), Behind: r.behindCell(),
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

// longestWaits lists the runs that waited longest, and at least a second.
func (p *Page) longestWaits() (all []listedRun) {
	byWait := slices.Clone(p.runs)
	slices.SortStableFunc(byWait, func(a, b *run) int { return cmp.Compare(b.waited(), a.waited()) })
	for _, r := range byWait[:min(len(byWait), waitsShown)] {
		if r.waited() < 1 {
			break
		}
		all = append(all, p.newListedRun(r))
	}
	return all
}

// troubles lists the last runs that did not end well, in the order of the time lines, and counts those that are not
// listed.
func (p *Page) troubles() (all []listedRun, more int) {
	for _, r := range slices.Backward(p.runs) {
		if r.kind == report.OK {
			continue
		}
		if len(all) == troublesShown {
			more++
			continue
		}
		all = append(all, p.newListedRun(r))
	}
	slices.Reverse(all)
	return all, more
}
