package webpage

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"golock/cli/report"
	"golock/locks"
)

// A line of a report says only who held the slot when the run began to wait. The lines of other runs say who held
// it afterwards, as far as the report has them.

// holders are the runs of a lock that had a slot, in the order in which they got it.
type holders struct {
	runs    []*run
	lastEnd []float64 // lastEnd[i] is the latest end of runs[0] to runs[i]
}

const (
	leastOverlap = 0.1 // seconds; a shorter overlap may be a difference between the clocks of two hosts
	namedHolders = 3   // the number of holders that the text about a wait names
	foundHolders = 50  // the number of holders that the text counts
)

// nameHolders finds out who held the slot while a run waited, and notes it in each such run.
func (p *Page) nameHolders() {
	type lock struct{ name, store string }
	byLock := map[lock]*holders{}
	for _, r := range p.runs {
		key := lock{r.name, r.store}
		if byLock[key] == nil {
			byLock[key] = &holders{}
		}
		if r.hadSlot {
			byLock[key].runs = append(byLock[key].runs, r)
		}
	}
	for _, h := range byLock {
		slices.SortStableFunc(h.runs, func(a, b *run) int { return cmp.Compare(a.granted, b.granted) })
		for i, r := range h.runs {
			h.lastEnd = append(h.lastEnd, r.end)
			if i > 0 {
				h.lastEnd[i] = max(r.end, h.lastEnd[i-1])
			}
		}
	}
	for _, r := range p.runs {
		isKnown := r.behind != "" || len(p.runs) <= detailLimit // a plain store does not say it, and the page has little room
		if isKnown && r.waited() >= 1 {
			p.explain(r, byLock[lock{r.name, r.store}].during(r))
		}
	}
}

// during returns the runs that had a slot while r waited.
func (h *holders) during(r *run) (found []*run) {
	firstLater := sort.Search(len(h.runs), func(i int) bool { return h.runs[i].granted >= r.granted })
	for i := firstLater - 1; i >= 0 && h.lastEnd[i] > r.begin && len(found) < foundHolders; i-- {
		o := h.runs[i]
		overlap := min(o.end, r.granted) - max(o.heldFrom(r), r.begin)
		if o != r && overlap >= leastOverlap {
			found = append(found, o)
		}
	}
	slices.Reverse(found)
	return found
}

// heldFrom returns when a run began to keep a waiter from its slot. A run with several names has the slots of
// the first names before r.granted, which is the grant of the last one. So a waiter's report can name it earlier.
func (r *run) heldFrom(waiter *run) float64 {
	if r.id != "" && r.id == waiter.behindID {
		return min(r.granted, waiter.begin)
	}
	return r.granted
}

// explain notes in a run behind which holders it waited, and whether they cover the whole wait. Until then
// r.behind has the first holder, as the line of r names it.
func (p *Page) explain(r *run, found []*run) {
	isFirst := func(o *run) bool { return o.id != "" && o.id == r.behindID }
	first := "" // the first holder, if its own line was not found
	if !slices.ContainsFunc(found, isFirst) {
		first = r.behind
	}
	isWhole := first == "" && coverWait(r, found)
	r.behind = p.holdersText(r, first, found)
	r.isBehindFirst = !isWhole && r.behind != ""
}

// coverWait reports whether the holders that were found had the slot during the whole wait of r.
func coverWait(r *run, found []*run) bool {
	gap := max(2, r.waited()/20) // allows for the time between two holders, and for clocks that differ
	covered := r.begin
	for _, o := range found {
		if o.heldFrom(r)-covered > gap {
			return false
		}
		covered = max(covered, o.end)
	}
	return r.granted-covered <= gap
}

// holdersText names the first holder, if it is not empty, and the holders that were found.
func (p *Page) holdersText(r *run, first string, found []*run) string {
	text := first
	for i, o := range found[:min(len(found), namedHolders)] {
		switch {
		case text == "":
		case i > 0 && o.heldFrom(r) < found[i-1].end-1: // they held slots at the same time
			text += " and "
		default:
			text += ", then "
		}
		text += p.holderText(o, r)
	}
	if more := len(found) - namedHolders; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// holderText names a run that a waiter waited for, and says when it ended.
func (p *Page) holderText(o, waiter *run) string {
	text := locks.Printable(o.command, heldByLimit)
	if text == "" {
		text = fmt.Sprintf("PID %d", o.pid)
	}
	text += " on " + o.host
	if o.note != "" {
		text += " (" + locks.Printable(o.note, briefLimit) + ")"
	}
	layout := "15:04"
	if waiter.waited() < 10*minute {
		layout = "15:04:05"
	}
	return text + " until " + p.format(o.end, layout)
}

// behindText says behind whom a run waited; "" if that is not known.
func (r *run) behindText() string {
	switch {
	case r.behind == "":
		return ""
	case r.isBehindFirst:
		return "first behind " + r.behind
	}
	return "behind " + r.behind
}

// behindCell is behindText below a heading that says "Behind".
func (r *run) behindCell() string {
	if r.isBehindFirst {
		return "first " + r.behind
	}
	return r.behind
}

// remarks returns the sentences at the top of the page, which answer what people ask first.
func (p *Page) remarks(rows []*report.Row) (all []string) {
	var skipped *report.Row
	for _, row := range rows {
		if row.Skipped > 0 && (skipped == nil || row.Skipped > skipped.Skipped) {
			skipped = row
		}
	}
	if skipped != nil {
		text := fmt.Sprintf("Most skipped: %s, %d of %d runs", printable(skipped.Name, nameLimit), skipped.Skipped, skipped.Runs)
		all = append(all, text+p.whySkipped(skipped)+".")
	}
	for _, k := range []struct {
		kind report.Kind
		text string
	}{
		{report.Failed, "Failed"}, {report.TimeLimit, "Stopped at the time limit"}, {report.Lost, "Lost the slot"},
		{report.Unavailable, "Store unavailable"},
	} {
		if names := p.namesOf(k.kind); names != "" {
			all = append(all, k.text+": "+names+".")
		}
	}
	var waited *run
	for _, r := range p.runs {
		if r.waited() >= 1 && (waited == nil || r.waited() > waited.waited()) {
			waited = r
		}
	}
	if waited != nil {
		text := fmt.Sprintf("Longest wait: %s on %s at %s, %s", waited.name, waited.host, p.format(waited.begin, "15:04:05"), report.Span(waited.waited()))
		if waited.behind != "" {
			text += " " + waited.behindText()
		}
		all = append(all, text+".")
	}
	return all
}

// whySkipped says who held the slot when most of the skipped runs of a lock were turned away, if that is
// known.
func (p *Page) whySkipped(row *report.Row) string {
	name, store := printable(row.Name, nameLimit), printable(row.Store, storeLimit)
	counts := map[string]int{}
	most := ""
	for _, r := range p.runs {
		if r.kind != report.Skipped || r.name != name || r.store != store || r.behind == "" {
			continue
		}
		text := r.behindText()
		counts[text]++
		if counts[text] > counts[most] {
			most = text
		}
	}
	switch {
	case most == "":
		return ""
	case row.Skipped == 1:
		return ", " + most
	case counts[most] == row.Skipped:
		return ", all " + most
	}
	return fmt.Sprintf(", %d %s", counts[most], most)
}

// namesOf counts the runs of a kind for each name, the most first.
func (p *Page) namesOf(kind report.Kind) string {
	const shown = 5
	counts := map[string]int{}
	var names []string
	for _, r := range p.runs {
		if r.kind != kind {
			continue
		}
		if counts[r.name] == 0 {
			names = append(names, r.name)
		}
		counts[r.name]++
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	var texts []string
	for _, name := range names[:min(len(names), shown)] {
		texts = append(texts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	text := strings.Join(texts, ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
