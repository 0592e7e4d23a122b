package webpage

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"golock/cli/report"
	"golock/test/testkit"
)

// made is when the pages of these tests are made. Their location is not UTC.
var made = time.Date(2026, 11, 28, 7, 0, 0, 0, time.FixedZone("CET", 3600))

// evening is when their first run begins, in seconds since 1970: 22:00 in that location.
var evening = time.Date(2026, 11, 27, 21, 0, 0, 0, time.UTC)

// write makes the page of some runs.
func write(t *testing.T, lines []*report.Line) string {
	t.Helper()
	return writePage(t, New(made), lines)
}

func writePage(t *testing.T, page *Page, lines []*report.Line) string {
	t.Helper()
	summary := report.NewSummary()
	for _, line := range lines {
		page.Add(line)
		summary.Add(line)
	}
	var b strings.Builder
	testkit.Must(t, page.Write(&b, summary.Rows()))
	return b.String()
}

func at(after time.Duration, name, outcome string, waited, ran float64) *report.Line {
	return &report.Line{
		Name: name, Store: "local", Host: "h1", Since: evening.Add(after), Outcome: outcome, Waited: waited, Ran: ran, PID: 7,
		Command: []string{"/usr/bin/" + name},
	}
}

// night has a run of each kind.
func night() []*report.Line {
	waiter := at(10*time.Minute, "backup", "ended", 1800, 600)
	waiter.WaitedFor = []report.Holder{{ID: "a-b", Host: "h2", PID: 4123, User: "root", Command: []string{"rsync", "-a"}, Note: "upgrade"}}
	waiter.Note = "ticket 7"
	holder := at(0, "backup", "ended", 0, 2400)
	holder.ID = "a-b"
	failed := at(20*time.Minute, "mail", "ended", 0, 5)
	failed.ExitCode = 3
	skipped := at(30*time.Minute, "mail", "busy", 0, 0)
	skipped.ExitCode = 75
	skipped.WaitedFor = []report.Holder{{Host: "web1", PID: 37, Command: []string{"sync"}}}
	interrupted := at(time.Hour, "mail", "interrupted", 60, 0)
	interrupted.ExitCode, interrupted.Signal = 143, "TERM"
	return []*report.Line{
		holder, waiter, failed, skipped, interrupted,
		at(90*time.Minute, "mail", "time-limit", 0, 60), at(100*time.Minute, "mail", "lost", 0, 60),
		at(110*time.Minute, "mail", "unavailable", 10, 0), at(120*time.Minute, "mail", "unlocked", 0, 60),
	}
}

func TestPage(t *testing.T) {
	text := write(t, night())
	for _, want := range []string{
		"9 runs of 2 locks on 1 host, 2026-11-27 22:00:00 to 2026-11-28 00:01:00",
		"Times are in CET, &#43;01:00",
		`<a href="#all">The whole time</a>`, `Fri 27 Nov 2026: <a href="#t1795813200">22:00</a> <a href="#t1795816800">23:00</a>`,
		`<section class="window first" id="all">`, `<h3>Friday, 27 November 2026, 22:00 to 23:00</h3>`,
		// The waiter is below the holder in the hour: from 10 to 40 minutes it waits, then it runs for 10.
		`<title>22:10:00 waited 30m00s behind /usr/bin/backup on h1 until 22:40, ran 10m00s: ok; ticket 7 [7 /usr/bin/backup]</title>` +
			`<rect class="w" x="16.67%" y="19" width="50%" height="10"/><rect class="r" x="66.67%" y="19" width="16.67%" height="10"/>` +
			`<text x="16.87%" y="28">behind /usr/bin/backup on h1 until 22:40</text>`,
		`<rect class="r f" x="33.33%" y="3" width="0.14%" height="10"/><use href="#failed" x="33.47%" y="8"/>`,
		`<use href="#skipped" x="50%" y="8"/>`, `<use href="#interrupted" `, `<use href="#time-limit" `, `<use href="#lost" `,
		`<use href="#unavailable" `, `<rect class="u" `, `<use href="#unlocked" `,
		"<li>Most skipped: mail, 1 of 7 runs, behind sync on web1 (PID 37).", "<li>Failed: mail 1.", "<li>Stopped at the time limit: mail 1.",
		"<li>Lost the slot: mail 1.", "<li>Store unavailable: mail 1.",
		"Longest wait: backup on h1 at 22:10:00, 30m00s behind /usr/bin/backup on h1 until 22:40.",
		`<th scope="row">mail<td class="n">7<td class="n">1<td class="n">3<td class="n">1<td class="n">1<td class="n">1<td class="n">0s`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A run waits behind one run after the other. What the report does not have is not claimed.
func TestBehind(t *testing.T) {
	first := at(0, "backup", "ended", 0, 14*60)
	first.ID, first.Host, first.Command = "x-a", "db1", []string{"backup", "24"}
	second := at(5*time.Minute, "backup", "ended", 9*60, 47*60)
	second.ID, second.Host, second.Command = "x-b", "db2", []string{"backup", "9"}
	beside := *second
	beside.Waited, beside.Ran = 0, 56*60
	waiter := at(6*time.Minute, "backup", "busy", 55*60, 0)
	waiter.WaitedFor = []report.Holder{{ID: "x-a", Host: "db1", PID: 24, Command: first.Command}}
	turnedAway := *waiter
	turnedAway.Waited = 0
	for _, c := range []struct {
		runs []*report.Line
		want string
	}{
		{[]*report.Line{first, second, waiter}, "behind backup 24 on db1 until 22:14, then backup 9 on db2 until 23:01"},
		{[]*report.Line{first, &beside, waiter}, "behind backup 24 on db1 until 22:14 and backup 9 on db2 until 23:01"},
		{[]*report.Line{second, waiter}, "first behind backup 24 on db1 (PID 24), then backup 9 on db2 until 23:01"},
		{[]*report.Line{first, waiter}, "first behind backup 24 on db1 until 22:14"},
		{[]*report.Line{waiter}, "first behind backup 24 on db1 (PID 24)"},
		{[]*report.Line{first, second, &turnedAway}, "behind backup 24 on db1 (PID 24)"},
	} {
		page := New(made)
		for _, line := range c.runs {
			page.Add(line)
		}
		lines := page.Lists(0)
		last := page.runs[len(page.runs)-1]
		if got := last.behindText(); got != c.want || !strings.HasSuffix(lines[len(lines)-1], "skipped  "+strings.TrimPrefix(c.want, "behind ")) && !last.isBehindFirst {
			t.Errorf("got %s, want %s: %q", got, c.want, lines)
		}
	}
}

// Every text of a report is text on the page, and the page loads nothing.
func TestHostileReport(t *testing.T) {
	const evil = `"'><script>alert(1)</script><img src=//x.example/><svg onload=alert(1)></title></svg></style>{{.}}` + "\u202e\x1b[2J\xff"
	line := at(0, "x", "ended", 2, 3)
	line.Name, line.Store, line.Host, line.User, line.Note, line.Signal, line.ExitCode = evil, evil, evil, evil, evil, evil, 1
	line.ID = "x-" + evil
	line.Command = []string{evil, strings.Repeat("<", 2<<20)}
	line.WaitedFor = []report.Holder{{ID: "x-" + evil, Host: evil, PID: -1, User: evil, Command: line.Command, Note: evil}}
	unknown := at(time.Minute, "y", evil, 1e300, -5)
	unknown.Since = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	early := at(time.Minute, "y", "busy", -1e300, 0)
	early.Since = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	text := write(t, append(night(), line, unknown, early))
	checkPage(t, text)
	if strings.Count(text, "&lt;script&gt;alert") < 6 {
		t.Error("the hostile text is not on the page")
	}
	if len(text) > 100_000 {
		t.Errorf("the page has %d bytes", len(text))
	}
}

// checkPage checks that a page has no other elements and attributes than it should have, no address
// but of its own parts, and that its elements are nested.
func checkPage(t *testing.T, text string) {
	t.Helper()
	known := strings.Fields("html head meta link title style body svg defs pattern rect path circle g line header h1 h2 h3 p ul li main use nav a " +
		"section div span b i text table thead tbody tr th td code br !doctype")
	attributes := strings.Fields("lang charset name content http-equiv rel href class aria-hidden aria-label id width height patternUnits " +
		"patternTransform d cx cy r x y x1 x2 y2 rowspan colspan scope")
	elements := regexp.MustCompile(`<(!?[a-zA-Z][a-zA-Z0-9]*)([^<>]*)>`)
	attribute := regexp.MustCompile(`([a-zA-Z-]+[0-9]?)="([^"]*)"`)
	withoutTags := elements.ReplaceAllString(text, "")
	_, afterStyle, _ := strings.Cut(withoutTags, "</style>")
	if stray := regexp.MustCompile(`<[^/]`).FindString(afterStyle); stray != "" {
		t.Errorf("an element that is none: %q", stray)
	}
	for _, m := range elements.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(" "+strings.Join(known, " ")+" ", " "+m[1]+" ") {
			t.Errorf("an element %s", m[0])
		}
		for _, a := range attribute.FindAllStringSubmatch(m[2], -1) {
			isAddress := a[1] == "href" && !strings.HasPrefix(a[2], "#") && a[2] != "data:,"
			if isAddress || !strings.Contains(" "+strings.Join(attributes, " ")+" ", " "+a[1]+" ") {
				t.Errorf("an attribute %s", a[0])
			}
		}
	}
	if outside := regexp.MustCompile(`(?i)(src|srcset|action|poster)=|url\([^#]|@import`).FindString(elementsOnly(elements, text) + styleText); outside != "" {
		t.Errorf("something from outside: %s", outside)
	}
	for picture := range strings.SplitSeq(text, "<svg") {
		picture, _, found := strings.Cut(picture, "</svg>")
		if found {
			checkXML(t, "<svg"+picture+"</svg>")
		}
	}
}

func elementsOnly(elements *regexp.Regexp, text string) string {
	return strings.Join(elements.FindAllString(text, -1), "\n")
}

// checkXML checks that the elements of a picture are nested.
func checkXML(t *testing.T, picture string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in %.300s", err, picture)
		}
	}
}

// A page of 10,000 runs has less than 3 MB, whatever their times are.
func TestPageIsSmall(t *testing.T) {
	for name, span := range map[string]time.Duration{"a night": 10 * time.Hour, "two months": 60 * 24 * time.Hour} {
		var lines []*report.Line
		for i := range 10_000 {
			line := at(span*time.Duration(i)/10_000, fmt.Sprint("nightly-", i%20), []string{"ended", "ended", "busy", "lost"}[i%4], float64(i%700), float64(i%900))
			line.Host = fmt.Sprintf("server-%d.example.org", i%3)
			line.Command = []string{"/usr/local/bin/nightly-import", "--all", "/srv/data"}
			if i%3 == 0 {
				line.WaitedFor = []report.Holder{{Host: "server-9.example.org", PID: i, User: "backup", Command: line.Command, Note: "https://ci.example.org/1"}}
			}
			lines = append(lines, line)
		}
		text := write(t, lines)
		if len(text) > 3_000_000 || strings.Count(text, "<g><title>") < len(lines) {
			t.Errorf("%s: the page has %d bytes", name, len(text))
		}
		if links := strings.Count(text, `<a href="#t`); links < 5 {
			t.Errorf("%s: %d links", name, links)
		}
	}
}

// Of a longer report the last runs are drawn; the table has all.
func TestPageOfTooManyRuns(t *testing.T) {
	var lines []*report.Line
	for i := range 405 {
		lines = append(lines, at(time.Duration(i)*time.Second, "x", "ended", 0, 0.5))
	}
	page := New(made)
	page.limit = 200
	text := writePage(t, page, lines)
	for _, want := range []string{
		"405 runs of 1 lock", "Only the last 200 runs are drawn and listed; the table has all.", `<th scope="row">x<td class="n">405<`,
		", 2026-11-27 22:03:25 to 2026-11-27 22:06:44.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %s: %.3000s", want, text)
		}
	}
	if empty := write(t, nil); !strings.Contains(empty, "The report has no runs.") {
		t.Error(empty)
	}
}
