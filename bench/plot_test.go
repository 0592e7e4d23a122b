package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// element is one of a drawing.
type element struct {
	name string
	attr map[string]string
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attr[name], 64)
	if err != nil {
		t.Fatalf("%s of %v: %v", name, e, err)
	}
	return v
}

// parsed is a drawing read as XML, and its texts.
func parsed(t *testing.T, svg string) (elements []element, texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, texts
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{token.Name.Local, map[string]string{}}
			for _, a := range token.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			elements = append(elements, e)
		case xml.CharData:
			if s := strings.TrimSpace(string(token)); s != "" {
				texts = append(texts, s)
			}
		}
	}
}

// Bars begin at zero and are as long as what they stand for.
func TestBars(t *testing.T) {
	p := plot{title: "A < B", unit: "ms"}
	p.add("", "one & only", false, []float64{1, 1, 1})
	p.add("", "golock run", true, []float64{2, 2, 2})
	p.add("", "nothing was measured", true, nil)
	elements, texts := parsed(t, p.svg("a machine"))
	width := map[string]float64{}
	for _, e := range elements {
		if e.name == "rect" && e.attr["x"] != "" {
			if e.number(t, "x") != plotLabels {
				t.Errorf("a bar begins at %s", e.attr["x"])
			}
			width[e.attr["class"]] = e.number(t, "width")
		}
		if e.name == "circle" {
			t.Error("a dot beside bars")
		}
	}
	if len(width) != 2 || math.Abs(width["own"]-2*width["other"]) > 0.2 {
		t.Errorf("widths %v", width)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"A < B", "one & only", "golock run", "2.00 ms", "bars from zero", "a machine"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "nothing") {
		t.Error("a line without a value")
	}
}

// Values that are far apart get a scale on which equal ratios are equal ways,
// and no bars.
func TestLogarithmic(t *testing.T) {
	p := plot{title: "t", unit: "ms"}
	for i, v := range []float64{1, 10, 100} {
		p.add(fmt.Sprintf("group %d", i/2), fmt.Sprint(v), false, []float64{v * 0.9, v, v * 1.1})
	}
	elements, texts := parsed(t, p.svg(""))
	var at []float64
	for _, e := range elements {
		if e.name == "circle" {
			at = append(at, e.number(t, "cx"))
		}
		if e.name == "rect" && e.attr["x"] != "" {
			t.Error("a bar on a logarithmic scale")
		}
		if e.name == "line" && e.attr["class"] == "range" && e.number(t, "x1") >= e.number(t, "x2") {
			t.Error("a range that is none")
		}
		for _, x := range []string{"x", "x1", "x2", "cx"} {
			if e.attr[x] != "" && (e.number(t, x) < 0 || e.number(t, x) > plotWidth) {
				t.Errorf("%v lies outside", e)
			}
		}
	}
	if len(at) != 3 || math.Abs((at[2]-at[1])-(at[1]-at[0])) > 0.3 {
		t.Errorf("dots at %v", at)
	}
	all := strings.Join(texts, "\n")
	if !strings.Contains(all, "group 0") || !strings.Contains(all, "group 1") || !strings.Contains(all, "logarithmic") {
		t.Error(all)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		scale scale
		want  string
	}{
		{scale{to: 3.3}, "[0 1 2 3]"},
		{scale{to: 83}, "[0 20 40 60 80]"},
		{scale{log: true, from: 0.5, to: 90}, "[0.5 1 2 5 10 20 50]"},
		{scale{log: true, from: 0.01, to: 1500}, "[0.01 0.1 1 10 100 1000]"},
	} {
		if got := fmt.Sprint(c.scale.ticks()); got != c.want {
			t.Errorf("%+v: %s, want %s", c.scale, got, c.want)
		}
	}
}
