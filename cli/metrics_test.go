package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golock/test/testkit"
)

// exposition understands the text format of Prometheus strictly, as
// https://prometheus.io/docs/instrumenting/exposition_formats/ has it, and gives
// the samples by their name and labels as they are written.
func exposition(text string) (map[string]float64, error) {
	sample := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)$`)
	samples, kinds, done := map[string]float64{}, map[string]string{}, map[string]bool{}
	family := ""
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("no newline at the end")
	}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		words := strings.SplitN(line, " ", 4)
		switch {
		case text == "":
		case words[0] == "#" && len(words) == 4 && words[1] == "HELP":
			if done[words[2]] {
				return nil, fmt.Errorf("line %d: %s comes a second time", i+1, words[2])
			}
			family, done[words[2]] = words[2], true
		case words[0] == "#" && len(words) == 4 && words[1] == "TYPE":
			if words[2] != family || (words[3] != "counter" && words[3] != "gauge") {
				return nil, fmt.Errorf("line %d: %q after the help of %s", i+1, line, family)
			}
			if strings.HasSuffix(family, "_total") != (words[3] == "counter") {
				return nil, fmt.Errorf("line %d: %s is called a %s", i+1, family, words[3])
			}
			kinds[family] = words[3]
		default:
			m := sample.FindStringSubmatch(line)
			if m == nil || m[1] != family || kinds[family] == "" {
				return nil, fmt.Errorf("line %d: %q in the family %s", i+1, line, family)
			}
			value, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				return nil, err
			}
			key := m[1] + "{" + m[2] + "}"
			if _, twice := samples[key]; twice {
				return nil, fmt.Errorf("line %d: %s comes a second time", i+1, key)
			}
			samples[key] = value
		}
	}
	return samples, nil
}

func TestMetrics(t *testing.T) {
	report := strings.Join([]string{
		`{"name":"a","store":"local","since":"2026-11-21T03:00:00Z","waited":1.5,"ran":10,"exit_code":0,"outcome":"ended"}`,
		`{"name":"a","store":"local","since":"2026-11-21T03:01:00Z","waited":0.5,"ran":2,"exit_code":3,"outcome":"ended"}`,
		`{"name":"a","store":"local","since":"2026-11-21T03:02:00Z","waited":0,"ran":0,"exit_code":0,"outcome":"busy"}`,
		`{"name":"a","store":"local","since":"2026-11-21T02:00:00Z","waited":0,"ran":1,"exit_code":124,"outcome":"time-limit"}`,
		`{"name":"a","store":"redis://h","since":"2026-11-21T03:00:00Z","waited":2,"ran":0,"exit_code":69,"outcome":"refused"}`,
		`{"name":"q\"\\\ufffd é","store":"local","since":"2026-11-21T03:00:00.25Z","waited":0,"ran":1e-6,"exit_code":0,"outcome":"ended"}`,
		`not of ours`,
		`{"name":"","since":"2026-11-21T03:00:00Z","outcome":"ended"}`,
		`{"name":"a","since":"yesterday","outcome":"ended"}`,
		``,
		`{"name":"a","store":"loc`,
	}, "\n")
	m := metrics{}
	var bad []int
	testkit.Must(t, m.read(strings.NewReader(report), func(line int, _ error) { bad = append(bad, line) }))
	if got := fmt.Sprint(bad); got != "[7 8 9 11]" {
		t.Errorf("not understood: %s", got)
	}
	var b strings.Builder
	m.write(&b)
	got, err := exposition(b.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	const day = 1795219200 // 2026-11-21
	want := map[string]float64{
		`golock_runs_total{name="a",store="local",outcome="ended"}`:                       2,
		`golock_runs_total{name="a",store="local",outcome="busy"}`:                        1,
		`golock_runs_total{name="a",store="local",outcome="time-limit"}`:                  1,
		`golock_runs_total{name="a",store="redis://h",outcome="refused"}`:                 1,
		`golock_failures_total{name="a",store="local"}`:                                   2,
		`golock_waited_seconds_total{name="a",store="local"}`:                             2,
		`golock_ran_seconds_total{name="a",store="local"}`:                                13,
		`golock_last_attempt_timestamp_seconds{name="a",store="local"}`:                   day + 3*3600 + 120,
		`golock_last_attempt_exit_code{name="a",store="local"}`:                           0,
		`golock_last_run_timestamp_seconds{name="a",store="local"}`:                       day + 3*3600 + 62.5,
		`golock_last_run_waited_seconds{name="a",store="local"}`:                          0.5,
		`golock_last_run_duration_seconds{name="a",store="local"}`:                        2,
		`golock_last_run_exit_code{name="a",store="local"}`:                               3,
		`golock_last_success_timestamp_seconds{name="a",store="local"}`:                   day + 3*3600 + 11.5,
		`golock_last_attempt_exit_code{name="a",store="redis://h"}`:                       69,
		`golock_last_run_timestamp_seconds{name="q\"\\` + "\ufffd é" + `",store="local"}`: day + 3*3600 + 0.250001,
	}
	for key, value := range want {
		if g, ok := got[key]; !ok || g-value > 1e-5 || value-g > 1e-5 {
			t.Errorf("%s is %v (%v), want %v", key, g, ok, value)
		}
	}
	for _, none := range []string{`golock_last_run_exit_code{name="a",store="redis://h"}`, `golock_last_success_timestamp_seconds{name="a",store="redis://h"}`} {
		if _, ok := got[none]; ok {
			t.Errorf("%s of a lock whose command never ran", none)
		}
	}
}

// Every metric is described for users.
func TestMetricsAreDocumented(t *testing.T) {
	known := []string{"golock_runs_total"}
	for _, f := range families() {
		known = append(known, f.name)
	}
	same(t, "docs/operations.md", matches(pages(t)["docs/operations.md"], "`(golock_[a-z_]+)`"), known)
}
