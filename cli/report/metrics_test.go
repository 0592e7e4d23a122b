package report

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golock/test/testkit"
)

// The expected text is Prometheus' text format, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/
func TestMetrics(t *testing.T) {
	report := strings.Join([]string{
		`{"name":"a","store":"local","since":"2026-11-21T03:00:00.25Z","waited":1.5,"ran":10,"exit_code":0,"outcome":"ended"}`,
		`{"name":"a","store":"local","since":"2026-11-21T03:01:00Z","waited":0.5,"ran":2,"exit_code":3,"outcome":"ended"}`,
		`{"name":"a","store":"local","since":"2026-11-21T03:02:00Z","waited":0,"ran":0,"exit_code":0,"outcome":"busy"}`,
		`{"name":"a","store":"local","since":"2026-11-21T02:00:00Z","waited":0,"ran":1,"exit_code":124,"outcome":"time-limit"}`,
		`{"name":"q\"\\\ufffd é","store":"redis://h","since":"2026-11-21T03:00:00Z","waited":2,"ran":0,"exit_code":69,"outcome":"refused"}`,
		`not of ours`,
		`{"name":"","since":"2026-11-21T03:00:00Z","outcome":"ended"}`,
		`{"name":"a","since":"yesterday","outcome":"ended"}`,
		``,
		`{"name":"a","store":"loc`,
	}, "\n")
	m := NewMetrics()
	var bad []int
	testkit.Must(t, Read(strings.NewReader(report), Filter{}, m.Add, func(line int, _ error) { bad = append(bad, line) }))
	if got := fmt.Sprint(bad); got != "[6 7 8 10]" {
		t.Errorf("not understood: %s", got)
	}
	var got strings.Builder
	testkit.Must(t, m.Write(&got))
	const a, q = `{name="a",store="local"}`, `{name="q\"\\` + "\ufffd é" + `",store="redis://h"}`
	help := map[string]string{}
	for _, metric := range metricHelp {
		help[metric[0]] = metric[1]
	}
	samples := func(name string, values ...string) string {
		kind := map[bool]string{true: "counter", false: "gauge"}[strings.HasSuffix(name, "_total")]
		text := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help[name], name, kind)
		for _, sample := range values {
			text += name + sample + "\n"
		}
		return text
	}
	outcome := func(lock, outcome string) string {
		return strings.TrimSuffix(lock, "}") + `,outcome="` + outcome + `"}`
	}
	want := samples("golock_runs_total",
		outcome(a, "busy")+" 1", outcome(a, "ended")+" 2", outcome(a, "time-limit")+" 1", outcome(q, "refused")+" 1") +
		samples("golock_failures_total", a+" 2", q+" 1") +
		samples("golock_waited_seconds_total", a+" 2", q+" 2") +
		samples("golock_ran_seconds_total", a+" 13", q+" 0") +
		samples("golock_skipped_in_a_row", a+" 1", q+" 0") +
		samples("golock_last_attempt_timestamp_seconds", a+" 1795230120", q+" 1795230002") +
		samples("golock_last_attempt_exit_code", a+" 0", q+" 69") +
		samples("golock_last_run_timestamp_seconds", a+" 1795230062.5") +
		samples("golock_last_run_waited_seconds", a+" 0.5") +
		samples("golock_last_run_duration_seconds", a+" 2") +
		samples("golock_last_run_exit_code", a+" 3") +
		samples("golock_last_success_timestamp_seconds", a+" 1795230011.75")
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
}

// Every metric is described for users, in the table of their page.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	testkit.Must(t, err)
	_, text, _ := strings.Cut(string(page), "\n## Monitor\n")
	text, _, _ = strings.Cut(text, "\nThese are rules for alerts.")
	var documented, known []string
	for _, m := range regexp.MustCompile("`(golock_[a-z_]+)`").FindAllStringSubmatch(text, -1) {
		documented = append(documented, m[1])
	}
	for _, metric := range metricHelp {
		known = append(known, metric[0])
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/operations.md describes %q, there are %q", documented, known)
	}
}
