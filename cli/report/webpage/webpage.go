// Package webpage makes a page of what golock run --report has written: a time line for each lock
// and host, the longest waits, what went wrong, and a table. The page needs no other file, no
// network and no JavaScript. Every text of a report is data to it.
package webpage

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"time"

	"golock/cli/report"
)

const (
	// drawnLimit is the number of runs that a page draws: the last ones of the report. The table counts all runs.
	drawnLimit = 20_000
	// A page with at most wholeLimit runs also has a window of the whole time.
	wholeLimit = 1500
	// A page with at most detailLimit runs shows the command and the note of each run.
	detailLimit = 5000
	// waitsShown and troublesShown are the lengths of the lists.
	waitsShown, troublesShown = 15, 50
)

// Page collects the runs of a page.
type Page struct {
	now     time.Time // all times on the page are in its location
	runs    []*run
	dropped int               // runs that are older than those that are drawn
	limit   int               // the number of runs that are drawn
	texts   map[string]string // shorten returns equal texts from here

	isArranged bool // arrange was called: no run is added after that
}

// New returns a page without runs. Times are shown in the location of now.
func New(now time.Time) *Page { return &Page{now: now, limit: drawnLimit, texts: map[string]string{}} }

// Add adds a run.
func (p *Page) Add(l *report.Line) {
	p.runs = append(p.runs, p.newRun(l))
	if len(p.runs) >= 2*p.limit {
		p.drop()
	}
}

// drop removes the oldest runs beyond the limit.
func (p *Page) drop() {
	slices.SortStableFunc(p.runs, func(a, b *run) int { return cmp.Compare(b.end, a.end) })
	if len(p.runs) > p.limit {
		p.dropped += len(p.runs) - p.limit
		p.runs = slices.Clone(p.runs[:p.limit])
	}
}

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var styleText string

// content is what the template shows.
type content struct {
	Style            template.CSS
	Made             string // when the page was made
	First, Last      string // when the drawn runs began and ended
	Zone             string // the time zone of all times on the page
	Runs, Drawn      int    // the numbers of all runs, and of those that the page draws
	Dropped          int    // the number of runs that the page does not draw
	Names, Hosts     int
	HasStores        bool // the report has runs of several stores
	HasUnlocked      bool
	Remarks          []string
	Legend           []mark
	Days             []linkLine
	Windows          []*window // the last one is shown first
	Grids            []*window // the windows whose ticks are drawn as a grid (window.Grid)
	Waits            []listedRun
	Troubles         []listedRun
	MoreTroubles     int // runs that Troubles has no room for
	Rows             []tableRow
	ShownIfNotChosen string // the ID of the window that is shown first
}

// tableRow is a row of the table.
type tableRow struct {
	*report.Row
	Last string // when the last run ended
}

// arrange puts the runs that are drawn into the order of their beginnings, and finds out behind whom they waited.
func (p *Page) arrange() {
	if p.isArranged {
		return
	}
	p.isArranged = true
	p.drop()
	slices.SortStableFunc(p.runs, func(a, b *run) int { return cmp.Compare(a.begin, b.begin) })
	p.nameHolders()
}

// Write writes the page. The rows count all runs, also those that the page does not draw.
func (p *Page) Write(to io.Writer, rows []*report.Row) error {
	parsed, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	p.arrange()
	c := &content{
		Style: template.CSS(styleText), Made: p.now.Format(time.DateTime), Zone: p.now.Format("MST, -07:00"),
		Drawn: len(p.runs), Dropped: p.dropped, Runs: len(p.runs) + p.dropped, Legend: marks(),
	}
	p.count(c, rows)
	if len(p.runs) > 0 {
		p.draw(c)
	}
	c.Remarks = p.remarks(rows)
	c.Waits = p.longestWaits()
	c.Troubles, c.MoreTroubles = p.troubles()
	return parsed.Execute(to, c)
}

// count counts names, hosts and stores, and fills the table.
func (p *Page) count(c *content, rows []*report.Row) {
	hosts, stores := map[string]bool{}, map[string]bool{}
	for _, r := range p.runs {
		hosts[r.host] = true
	}
	for _, row := range rows {
		stores[row.Store] = true
		c.HasUnlocked = c.HasUnlocked || row.Unlocked > 0
		shown := *row
		shown.Name, shown.Store = printable(row.Name, nameLimit), printable(row.Store, storeLimit)
		c.Rows = append(c.Rows, tableRow{&shown, p.stamp(row.LastEnd)})
	}
	c.Names, c.Hosts, c.HasStores = len(rows), len(hosts), len(stores) > 1
}

// draw fills the windows and the links to them.
func (p *Page) draw(c *content) {
	first, last := p.extent()
	c.First, c.Last = p.stamp(first), p.stamp(last)
	windows := p.windows()
	if len(p.runs) <= wholeLimit {
		whole := p.whole(first, last)
		if len(windows) == 1 {
			windows = nil
		}
		c.Days = p.links(windows)
		windows = append(windows, whole)
	} else {
		c.Days = p.links(windows)
	}
	for _, w := range windows {
		p.fill(w, c.HasStores)
	}
	c.Windows, c.Grids = windows, shareGrids(windows)
	c.ShownIfNotChosen = windows[len(windows)-1].ID
}

// extent returns when the first run began and the last one ended.
func (p *Page) extent() (first, last float64) {
	first, last = p.runs[0].begin, p.runs[0].end
	for _, r := range p.runs {
		first, last = min(first, r.begin), max(last, r.end)
	}
	return first, last
}
