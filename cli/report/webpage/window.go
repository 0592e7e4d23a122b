package webpage

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"golock/cli/report"
)

// window is a stretch of time that the page shows at once.
type window struct {
	ID       string
	Title    string
	from, to float64 // seconds since 1970
	runs     []*run
	Ticks    []tick
	Grid     string // the ID of the window whose grid this window shows: it has the same ticks (shareGrids)
	Lanes    []*lane
}

// tick is a moment on the axis of time.
type tick struct{ X, Text string }

// linkLine is a line of links to the windows of a day, or of a year.
type linkLine struct {
	Title string
	Links []link
}

type link struct{ ID, Text string }

const (
	minute = 60.0 // seconds
	hour   = 60 * minute
	day    = 24 * hour
)

// windows divides the runs into windows of equal length: hours, or longer ones if a page of hours would be
// too large. Long runs, which are in many windows, and many windows with few runs make a page large.
func (p *Page) windows() []*window {
	budget := float64(bytesOfPage + bytesOfRun*len(p.runs))
	sizes := make([]float64, len(p.runs))
	for i, r := range p.runs {
		sizes[i] = float64(p.size(r))
	}
	for _, length := range []float64{hour, 3 * hour, 6 * hour, 12 * hour, day, 7 * day, 28 * day, 364 * day} {
		size := 0.0
		for i, r := range p.runs {
			size += sizes[i] * (p.index(r.end, length) - p.index(r.begin, length) + 1)
		}
		if size > budget {
			continue
		}
		windows, lanes := p.divide(length)
		size += float64(len(windows)*sizeOfWindow + lanes*sizeOfLane)
		if size <= budget {
			return windows
		}
	}
	first, last := p.extent()
	return []*window{p.whole(first, last)}
}

// The windows together have at most bytesOfPage bytes and bytesOfRun more for each run, unless a single
// window of all runs is larger.
const bytesOfPage, bytesOfRun = 400_000, 230

// sizeOfWindow is the approximate size of a window without lanes, and sizeOfLane the size of a lane without
// bars, in bytes.
const sizeOfWindow, sizeOfLane = 700, 130

// size returns the approximate size of the bar of a run, in bytes.
func (p *Page) size(r *run) int {
	const element, rectangle, mark, label = 26, 58, 40, 30
	size := element + len(p.about(r, "15:04:05"))
	if r.started {
		size += rectangle
	}
	if r.waited() >= 1 {
		size += rectangle
	}
	if r.kind != report.OK {
		size += mark
	}
	if r.behind != "" {
		size += label
	}
	return size
}

// index returns the number of the window that has an instant, if all windows have a length. Windows begin at full
// hours, or days, of the page's location.
func (p *Page) index(seconds, length float64) float64 {
	return math.Floor((seconds + p.offset()) / length)
}

// offset is how far the page's location is ahead of UTC (east), in seconds.
func (p *Page) offset() float64 {
	_, offset := timeOf(p.runs[0].begin).In(p.now.Location()).Zone()
	return float64(offset)
}

// divide returns the windows that have runs, and how many lanes they have together.
func (p *Page) divide(length float64) (windows []*window, lanes int) {
	byIndex := map[float64]*window{}
	type laneKey struct {
		index             float64
		name, store, host string
	}
	keys := map[laneKey]bool{}
	for _, r := range p.runs {
		for i := p.index(r.begin, length); i <= p.index(r.end, length); i++ {
			w := byIndex[i]
			if w == nil {
				w = p.newWindow(i*length-p.offset(), length)
				byIndex[i] = w
			}
			w.runs = append(w.runs, r)
			keys[laneKey{i, r.name, r.store, r.host}] = true
		}
	}
	windows = slices.SortedFunc(maps.Values(byIndex), func(a, b *window) int { return cmp.Compare(a.from, b.from) })
	return windows, len(keys)
}

// newWindow returns a window without runs.
func (p *Page) newWindow(from, length float64) *window {
	w := &window{ID: fmt.Sprintf("t%.0f", from), from: from, to: from + length}
	if length >= day {
		w.Title = p.format(w.from, "Monday, 2 January 2006") + " to " + p.format(w.to, "Monday, 2 January 2006, 15:04")
	} else {
		w.Title = p.format(w.from, "Monday, 2 January 2006, 15:04") + " to " + p.format(w.to, "15:04")
	}
	return w
}

// whole returns the window of all runs, from the first tick before them to the first tick after them.
func (p *Page) whole(first, last float64) *window {
	step := stepOf(max(last-first, 1))
	w := &window{ID: "all", Title: "The whole time", runs: p.runs}
	w.from = math.Floor((first+p.offset())/step)*step - p.offset()
	w.to = math.Ceil((max(last, first+1)+p.offset())/step)*step - p.offset()
	return w
}

// stepOf returns the time between two ticks of a window.
func stepOf(span float64) float64 {
	const mostTicks, mostTicksOfSeconds = 10, 6 // a text with seconds is wider
	for _, step := range []float64{
		0.1, 0.5, 1, 2, 5, 10, 15, 30, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
		hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day, 28 * day, 84 * day, 364 * day,
	} {
		most := mostTicks
		if step < minute {
			most = mostTicksOfSeconds
		}
		if span/step <= float64(most) {
			return step
		}
	}
	return span / mostTicks
}

// axis puts ticks on the axis of time. The first and the last moment have none: their texts would
// not fit.
func (p *Page) axis(w *window) {
	step := stepOf(w.to - w.from)
	layout := "15:04"
	switch {
	case step >= day:
		layout = "2 Jan"
	case step < minute:
		layout = "15:04:05"
	}
	for t := w.from + step; t < w.to-step/2; t += step {
		w.Ticks = append(w.Ticks, tick{w.x(t), p.format(t, layout)})
	}
}

// shareGrids gives windows with ticks at the same positions one grid. It returns the windows whose grids are
// drawn.
func shareGrids(windows []*window) (drawn []*window) {
	ids := map[string]string{} // the IDs of the windows whose grids are drawn, by the positions of the ticks
	for _, w := range windows {
		positions := ""
		for _, t := range w.Ticks {
			positions += t.X + " "
		}
		if ids[positions] == "" {
			ids[positions] = w.ID
			drawn = append(drawn, w)
		}
		w.Grid = ids[positions]
	}
	return drawn
}

// share returns the position of an instant in the window, in percent of the width. An instant outside of
// the window has the position of the nearer edge.
func (w *window) share(seconds float64) float64 {
	return 100 * min(max((seconds-w.from)/(w.to-w.from), 0), 1)
}

func (w *window) x(seconds float64) string { return percent(w.share(seconds)) }

// percent writes a position, as short as a browser can show it.
func percent(share float64) string {
	text := fmt.Sprintf("%.2f", share)
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	if text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	return text
}

// links returns links to the windows, with a line for each day. Windows of a day or more have a line for
// each year.
func (p *Page) links(windows []*window) (lines []linkLine) {
	if len(windows) < 2 {
		return nil
	}
	for _, w := range windows {
		title, text := p.format(w.from, "Mon 2 Jan 2006"), p.format(w.from, "15:04")
		if w.to-w.from >= day {
			title, text = p.format(w.from, "2006"), p.format(w.from, "2 Jan")
		}
		if len(lines) == 0 || lines[len(lines)-1].Title != title {
			lines = append(lines, linkLine{Title: title})
		}
		last := &lines[len(lines)-1]
		last.Links = append(last.Links, link{w.ID, text})
	}
	return lines
}
