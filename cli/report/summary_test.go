package report

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Expectations: the nearest-rank method, https://en.wikipedia.org/wiki/Percentile.
func TestTimes(t *testing.T) {
	numbers := func(n int) (t Times) {
		for i := range n {
			t.all = append(t.all, float64(i+1))
		}
		return t
	}
	for _, c := range []struct {
		times Times
		want  string
	}{
		{Times{}, "  "}, {numbers(1), "1.0s 1.0s 1.0s"}, {numbers(2), "1.0s 2.0s 2.0s"}, {numbers(3), "2.0s 3.0s 3.0s"},
		{numbers(20), "10s 19s 20s"}, {numbers(100), "50s 1m35s 1m40s"}, {numbers(101), "51s 1m36s 1m41s"},
	} {
		if got := c.times.Median() + " " + c.times.P95() + " " + c.times.Longest(); got != c.want {
			t.Errorf("%d times: %s, want %s", len(c.times.all), got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for seconds, want := range map[float64]string{
		-5: "0s", 0: "0s", 0.04: "0s", 0.05: "0.1s", 9.94: "9.9s", 10: "10s", 59.9: "59s", 60: "1m00s", 3599.9: "59m59s", 3600: "1h00m",
		86399: "23h59m", 86400: "1d00h", 100000: "1d03h", 1e300: "36500d00h",
	} {
		if got := Span(seconds); got != want {
			t.Errorf("%g seconds: %s, want %s", seconds, got, want)
		}
	}
}

// read reads the lines of a report.
func read(t *testing.T, selected Filter, report string) *Summary {
	t.Helper()
	s := NewSummary()
	err := Read(strings.NewReader(report), selected, s.Add, func(n int, err error) { t.Errorf("line %d: %v", n, err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runs are a run of each kind, and some more; that of b is in another store.
const runs = `
{"name":"a","store":"local","since":"2026-11-21T03:00:00Z","waited":1.5,"ran":10,"exit_code":0,"outcome":"ended"}
{"name":"a","store":"local","since":"2026-11-21T03:01:00Z","waited":0,"ran":0,"exit_code":0,"outcome":"busy"}
{"name":"a","store":"local","since":"2026-11-21T03:02:00Z","waited":0,"ran":90,"exit_code":124,"outcome":"time-limit","signal":"TERM"}
{"name":"a","store":"local","since":"2026-11-21T03:03:00Z","waited":0,"ran":5,"exit_code":79,"outcome":"lost"}
{"name":"a","store":"local","since":"2026-11-21T03:04:00Z","waited":10,"ran":0,"exit_code":69,"outcome":"unavailable"}
{"name":"a","store":"local","since":"2026-11-21T03:05:00Z","waited":10,"ran":1,"exit_code":0,"outcome":"unlocked","unlocked":true}
{"name":"a","store":"local","since":"2026-11-21T03:06:00Z","waited":0,"ran":1,"exit_code":137,"outcome":"ended","signal":"KILL"}
{"name":"a","store":"local","since":"2026-11-21T03:07:00Z","waited":3,"ran":0,"exit_code":143,"outcome":"interrupted","signal":"TERM"}
{"name":"a","store":"local","since":"2026-11-21T03:08:00Z","waited":3,"ran":0,"exit_code":127,"outcome":"not-found"}
{"name":"b \u202e","store":"redis://h/0","since":"2026-11-21T02:59:00Z","waited":0,"ran":2,"exit_code":3,"outcome":"ended","x":1}
`

func TestTable(t *testing.T) {
	all := read(t, Filter{}, runs).Rows()
	wide := strings.Join(Table(all, 0), "\n")
	ended := func(after time.Duration) string {
		return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC).Add(after).Local().Format(time.DateTime)
	}
	for _, line := range []string{
		"NAME STORE RUNS SKIPPED FAILED LOST UNAVAILABLE UNLOCKED MEDIAN P95 LONGEST MEDIAN P95 LONGEST ENDED RESULT",
		"a local 9 1 4 1 1 1 1.5s 10s 10s 5.0s 1m30s 1m30s " + ended(8*time.Minute+3*time.Second) + " not-found (127)",
		"b \ufffd redis://h/0 1 0 1 0 0 0 0s 0s 0s 2.0s 2.0s 2.0s " + ended(-58*time.Second) + " exit code 3",
	} {
		if !slices.ContainsFunc(strings.Split(wide, "\n"), func(got string) bool { return strings.Join(strings.Fields(got), " ") == line }) {
			t.Errorf("no line %q in\n%s", line, wide)
		}
	}
	for _, width := range []int{200, 120, 80, 60, 40, 10} {
		for _, line := range Table(all, width) {
			if n := len([]rune(line)); n > width {
				t.Errorf("%d columns of %d: %q", n, width, line)
			}
		}
	}
	if head := Table(all, 80)[1]; !strings.HasPrefix(head, "NAME  RUNS  SKIPPED  FAILED  LOST  UNAVAILABLE") {
		t.Errorf("80 columns: %q", head)
	}
	if lines := Table(nil, 80); lines != nil {
		t.Errorf("a table of nothing: %q", lines)
	}
}

func TestFilter(t *testing.T) {
	since := float64(time.Date(2026, 11, 21, 3, 7, 3, 0, time.UTC).Unix())
	for _, c := range []struct {
		selected Filter
		want     int
	}{
		{Filter{}, 10}, {Filter{Name: "a"}, 9}, {Filter{Name: "c"}, 0}, {Filter{Since: since}, 2}, {Filter{Name: "b \u202e", Since: since}, 0},
	} {
		n := 0
		for _, row := range read(t, c.selected, runs).Rows() {
			n += row.Runs
		}
		if n != c.want {
			t.Errorf("%+v selects %d runs, want %d", c.selected, n, c.want)
		}
	}
}

// Lines come in any order: the last run is the one that ended last, and skipped runs count since the
// end of the last one that had its turn.
func TestOrderOfLines(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(`
{"name":"a","since":"2026-11-21T03:00:00Z","ran":10,"outcome":"ended","slots":[0]}
{"name":"a","since":"2026-11-21T03:00:05Z","outcome":"busy","exit_code":75}
{"name":"a","since":"2026-11-21T03:01:00Z","outcome":"busy","exit_code":75}
{"name":"a","since":"2026-11-21T03:02:00Z","outcome":"unavailable","exit_code":69}
{"name":"a","since":"2026-11-21T03:03:00Z","outcome":"busy","exit_code":75}`), "\n")
	for range len(lines) {
		lines = append(lines[1:], lines[0])
		report := strings.Join(lines, "\n")
		row := read(t, Filter{}, report).Rows()[0]
		if row.LastKind != Skipped || row.Skipped != 3 {
			t.Errorf("%+v", row)
		}
		m := NewMetrics()
		var text strings.Builder
		_ = Read(strings.NewReader(report), Filter{}, m.Add, nil)
		_ = m.Write(&text)
		if want := `golock_skipped_in_a_row{name="a",store=""} 2`; !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
}
