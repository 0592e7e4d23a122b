package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	golockColor = color.RGBA{R: 0x1f, G: 0x6f, B: 0xeb, A: 0xff}
	otherColor  = color.RGBA{R: 0x9a, G: 0xa4, B: 0xb2, A: 0xff}
)

// longest is how many times the median bar a bar may be long. Longer ones would
// leave no room for the others: the drawing names them with their values.
const longest = 8

// drawnRows gives the rows to draw, from the longest bar to the shortest, and
// what is said of those that are too long.
func (c outcome) drawnRows() (drawn []rowJSON, long []string) {
	m := c.Metrics[0]
	var medians []float64
	for _, row := range c.Rows {
		medians = append(medians, row.Values[m.Name].Median)
	}
	limit := longest * median(medians)
	for _, row := range c.Rows {
		v, is := row.Values[m.Name]
		if is && v.Median > limit {
			long = append(long, fmt.Sprintf("%s %s %s", row.Tool, number(v.Median, true), m.Unit))
		} else if is {
			drawn = append(drawn, row)
		}
	}
	slices.SortStableFunc(drawn, func(a, b rowJSON) int {
		return cmp.Compare(b.Values[m.Name].Median, a.Values[m.Name].Median)
	})
	return drawn, long
}

// chart makes a drawing of the first metric: bars from zero, the unit at the
// axis, the value behind the bar.
func (c outcome) chart() (*plot.Plot, int) {
	m := c.Metrics[0]
	drawn, long := c.drawnRows()
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.Padding = vg.Points(6)
	p.X.Label.Text = fmt.Sprintf("%s, %s (median; less is better)", m.Name, m.Unit)
	if long != nil {
		p.X.Label.Text += "\nnot drawn, too long: " + strings.Join(long, ", ")
	}
	var names []string
	var labels plotter.XYLabels
	for i, row := range drawn {
		v := row.Values[m.Name].Median
		bar := get(plotter.NewBarChart(plotter.Values{v}, vg.Points(12)))
		bar.Horizontal, bar.XMin, bar.LineStyle.Width, bar.Color = true, float64(i), 0, otherColor
		if strings.HasPrefix(row.Tool, "golock") {
			bar.Color = golockColor
		}
		p.Add(bar)
		names = append(names, row.Tool)
		labels.XYs = append(labels.XYs, plotter.XY{X: v, Y: float64(i)})
		labels.Labels = append(labels.Labels, number(v, true))
		p.X.Max = max(p.X.Max, v*1.12)
	}
	text := get(plotter.NewLabels(labels))
	for i := range text.TextStyle {
		text.TextStyle[i].YAlign = draw.YCenter
	}
	text.Offset.X = vg.Points(3)
	p.Add(text)
	p.NominalY(names...)
	p.Y.LineStyle.Width = 0
	p.X.Min, p.Y.Min, p.Y.Max = 0, -0.6, float64(len(drawn))-0.4
	return p, len(drawn)
}

func (c outcome) draw() []byte {
	p, rows := c.chart()
	canvas := vgsvg.New(vg.Points(480), vg.Points(86+18*float64(rows)))
	p.Draw(draw.Crop(draw.New(canvas), 8, -8, 8, -8))
	var out bytes.Buffer
	get(canvas.WriteTo(&out))
	return out.Bytes()
}
