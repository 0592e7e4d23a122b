package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a drawing: a line for each thing that was measured, with a mark where
// its median is and a stroke from the 10th to the 90th percentile. Where the
// longest is not much more than the shortest, bars begin at zero; else the
// scale is logarithmic and there are no bars, whose length would mean nothing.
type plot struct {
	file    string // below docs/plots
	title   string
	unit    string
	strokes []stroke
}

// stroke is a line of a plot.
type stroke struct {
	group          string // strokes of a group stand together under its name
	label          string
	low, mid, high float64
	own            bool // golock's
}

// plot adds a line to the drawing of that name.
func (b *bench) plot(file, group string, t *tool, sample []float64) {
	b.plotAs(file, group, t.name, t.isGolock(), sample)
}

func (b *bench) plotAs(file, group, label string, own bool, sample []float64) {
	for _, p := range b.plots {
		if p.file == file {
			p.add(group, label, own, sample)
			return
		}
	}
	p := &plot{file: file, title: plotTitles[file].title, unit: plotTitles[file].unit}
	p.add(group, label, own, sample)
	b.plots = append(b.plots, p)
}

func (p *plot) add(group, label string, own bool, sample []float64) {
	if len(sample) > 0 {
		p.strokes = append(p.strokes, stroke{group, label, quantile(sample, 0.1), median(sample), quantile(sample, 0.9), own})
	}
}

// Sizes in the drawing, in pixels.
const (
	plotWidth  = 760
	plotLabels = 250 // where the scale begins
	plotValues = 90  // room behind the scale
	plotLine   = 20
	plotTop    = 44
)

// plotStyle makes a drawing that a page shows as a picture readable on light and
// dark ground: it has a ground of its own.
const plotStyle = `<style>
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:14px}.end{text-anchor:end}.middle{text-anchor:middle}
.faint{fill:#59636e}.ground{fill:#ffffff}.grid{stroke:#d8dee4}.own{fill:#0969da}.other{fill:#8c959f}.range{stroke:#1f2328;stroke-width:1.5}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.faint{fill:#9198a1}.ground{fill:#0d1117}.grid{stroke:#30363d}.own{fill:#4493f8}.other{fill:#7d8590}.range{stroke:#e6edf3}
}
</style>
`

// svg draws it. The foot says where the figures come from.
func (p *plot) svg(foot string) string {
	strokes := slices.Clone(p.strokes)
	var groups []string
	headings := 0
	for _, s := range strokes {
		if !slices.Contains(groups, s.group) {
			groups = append(groups, s.group)
			if s.group != "" {
				headings++
			}
		}
	}
	slices.SortStableFunc(strokes, func(a, b stroke) int {
		return cmp.Compare(slices.Index(groups, a.group), slices.Index(groups, b.group))
	})
	scale := newScale(strokes)
	height := plotTop + plotLine*(len(strokes)+headings) + 46

	var out strings.Builder
	draw := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	draw(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`, plotWidth, height, plotWidth, height)
	draw(`<title>%s</title>`, html.EscapeString(p.title))
	out.WriteString(plotStyle)
	draw(`<rect class="ground" width="%d" height="%d"/>`, plotWidth, height)
	draw(`<text class="title" x="12" y="22">%s</text>`, html.EscapeString(p.title))
	bottom := height - 42
	for _, at := range scale.ticks() {
		draw(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, scale.x(at), scale.x(at), plotTop-8, bottom)
		draw(`<text class="faint middle" x="%.1f" y="%d">%s</text>`, scale.x(at), bottom+14, strconv.FormatFloat(at, 'f', -1, 64))
	}
	y, group := plotTop, ""
	for _, s := range strokes {
		if s.group != group {
			group = s.group
			draw(`<text class="faint" x="12" y="%d">%s</text>`, y+14, html.EscapeString(group))
			y += plotLine
		}
		color := "other"
		if s.own {
			color = "own"
		}
		middle := y + plotLine/2
		draw(`<text class="end" x="%d" y="%d">%s</text>`, plotLabels-8, middle+4, html.EscapeString(s.label))
		if scale.log {
			draw(`<circle class="%s" cx="%.1f" cy="%d" r="5"/>`, color, scale.x(s.mid), middle)
		} else {
			draw(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, color, plotLabels, y+4, scale.x(s.mid)-plotLabels, plotLine-8)
		}
		if s.high > s.low {
			draw(`<line class="range" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, scale.x(s.low), scale.x(s.high), middle, middle)
		}
		draw(`<text x="%.1f" y="%d">%s</text>`, scale.x(max(s.high, s.mid))+9, middle+4, threeDigits(s.mid)+" "+html.EscapeString(p.unit))
		y += plotLine
	}
	kind := "bars from zero"
	if scale.log {
		kind = "logarithmic scale"
	}
	draw(`<text class="faint" x="12" y="%d">%s</text>`, height-10, html.EscapeString(fmt.Sprintf("%s: median, line from p10 to p90; %s. %s", p.unit, kind, foot)))
	out.WriteString("</svg>\n")
	return out.String()
}

// threeDigits is a value as it stands beside its mark.
func threeDigits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// scale leads from values to pixels.
type scale struct {
	log      bool
	from, to float64
}

// widest is how many times the smallest value the largest may be for bars:
// beyond it the short ones are too short to be told apart.
const widest = 25

func newScale(strokes []stroke) scale {
	least, most := math.Inf(1), 0.0
	for _, s := range strokes {
		if s.mid > 0 {
			least = min(least, s.mid)
		}
		if s.low > 0 {
			least = min(least, s.low)
		}
		most = max(most, s.mid, s.high)
	}
	if most == 0 || most/least <= widest {
		return scale{to: max(most, 1e-9)}
	}
	// From a step of 1, 2, 5 at or below the least.
	from := math.Pow(10, math.Floor(math.Log10(least)))
	for _, step := range []float64{5, 2} {
		if from*step <= least {
			from *= step
			break
		}
	}
	return scale{log: true, from: from, to: most}
}

// x is where a value lies.
func (s scale) x(v float64) float64 {
	room := float64(plotWidth - plotLabels - plotValues)
	part := v / s.to
	if s.log {
		part = math.Log(max(v, s.from)/s.from) / math.Log(s.to/s.from)
	}
	return plotLabels + room*part
}

// ticks are round values along the scale.
func (s scale) ticks() []float64 {
	var at []float64
	if s.log {
		for decade := math.Floor(math.Log10(s.from)); ; decade++ {
			for _, step := range []float64{1, 2, 5} {
				v := step * math.Pow(10, decade)
				if v > s.to*(1+1e-9) {
					return thinned(at)
				}
				if v >= s.from*(1-1e-9) {
					at = append(at, rounded(v))
				}
			}
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(s.to/2)))
	for _, times := range []float64{5, 2} {
		if s.to/(step*times) >= 3 {
			step *= times
			break
		}
	}
	for i := 0; float64(i)*step <= s.to*(1+1e-9); i++ {
		at = append(at, rounded(float64(i)*step))
	}
	return at
}

// thinned leaves out steps when there are too many to be read.
func thinned(at []float64) []float64 {
	if len(at) <= 10 {
		return at
	}
	return slices.DeleteFunc(at, func(v float64) bool {
		decade := math.Log10(v)
		return math.Abs(decade-math.Round(decade)) > 1e-6
	})
}
