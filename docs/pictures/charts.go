package pictures

import (
	"encoding/json"
	"fmt"
	"strings"
)

// results are what a chart needs of docs/benchmarks.json.
type results struct {
	Cases []struct {
		Name    string `json:"name"`
		Metrics []struct {
			Name string `json:"name"`
			Unit string `json:"unit"`
		} `json:"metrics"`
		Rows []struct {
			Tool   string `json:"tool"`
			Values map[string]struct {
				Median float64 `json:"median"`
			} `json:"values"`
		} `json:"rows"`
	} `json:"cases"`
}

type bar struct {
	label string
	value float64
}

// bars reads the medians of the first metric of a case, for the given tools.
func (r *results) bars(name string, tools ...string) (all []bar, err error) {
	for _, c := range r.Cases {
		if c.Name != name {
			continue
		}
		for _, tool := range tools {
			for _, row := range c.Rows {
				if row.Tool == tool {
					all = append(all, bar{tool, row.Values[c.Metrics[0].Name].Median})
				}
			}
		}
	}
	if len(all) != len(tools) {
		return nil, fmt.Errorf("case %s has only %d of %q", name, len(all), tools)
	}
	return all, nil
}

// Charts draws the bar charts of benchmarks.json: the start of a run, and the hand-off.
func Charts(benchmarks []byte) (start, handOff string, err error) {
	var r results
	err = json.Unmarshal(benchmarks, &r)
	if err != nil {
		return "", "", err
	}
	local, err := r.bars("start", "true", "flock", "golock")
	if err != nil {
		return "", "", err
	}
	local[0].label = "no lock at all"
	stores := []string{"golock mkdir", "golock redis", "golock mysql", "golock postgres"}
	shared, err := r.bars("server-start", append(stores, "etcdctl lock")...)
	if err != nil {
		return "", "", err
	}
	waiting, err := r.bars("server-handoff-1", append([]string{"golock"}, append(stores, "etcdctl lock")...)...)
	if err != nil {
		return "", "", err
	}
	start = chart("Start of a run: milliseconds, median", append(local, shared...))
	return start, chart("Hand-off to one waiter: milliseconds, median", waiting), nil
}

// chart draws horizontal bars; those of golock have the main color.
func chart(title string, bars []bar) string {
	d := &drawing{width: 720, height: 56 + 30*len(bars), title: title}
	const left, right = 150.0, 640.0
	longest := 0.0
	for _, b := range bars {
		longest = max(longest, b.value)
	}
	d.text("strong", "start", 20, 26, title)
	for i, b := range bars {
		y := 42 + 30*float64(i)
		class := "other"
		if strings.HasPrefix(b.label, "golock") {
			class = "main"
		}
		width := (right - left) * b.value / longest
		d.text("", "end", left-10, y+15, b.label)
		d.rect(class, left, y, width, 20)
		d.text("", "start", left+width+8, y+15, fmt.Sprintf("%.1f", b.value))
	}
	return d.String()
}

func seconds(n float64) string { return fmt.Sprintf("%.0f s", n) }
