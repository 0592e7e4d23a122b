package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golock/cli/report"
	"golock/locks"
)

// lockTotals are the numbers of one lock that ls --metrics prints.
type lockTotals struct {
	holders, waiters           int
	oldestHolder, oldestWaiter time.Duration
	hasHolderAge, hasWaiterAge bool
	leaseLeft                  time.Duration // the time until the first lease ends
	hasLease                   bool
}

// add counts an entry.
func (l *lockTotals) add(e locks.Entry) {
	if e.State == locks.Waiting {
		l.waiters++
		if e.HasAge {
			l.oldestWaiter, l.hasWaiterAge = max(l.oldestWaiter, e.Age), true
		}
		return
	}
	l.holders++
	if e.HasAge && !e.Ended { // a slot that only --hold keeps is not held too long
		l.oldestHolder, l.hasHolderAge = max(l.oldestHolder, e.Age), true
	}
	if e.TTL > 0 && !e.Ended && (!l.hasLease || e.Expires < l.leaseLeft) {
		l.leaseLeft, l.hasLease = max(e.Expires, 0), true
	}
}

// lockMetrics are the metrics of ls --metrics, in the order in which they are written. value reports false
// if the metric is not known for a lock.
var lockMetrics = []struct {
	name, help string
	value      func(l *lockTotals) (float64, bool)
}{
	{"golock_holders", "Slots' holders now, those that only --hold keeps included.",
		func(l *lockTotals) (float64, bool) { return float64(l.holders), true }},
	{"golock_waiters", "Runs that wait now.",
		func(l *lockTotals) (float64, bool) { return float64(l.waiters), true }},
	{"golock_oldest_holder_age_seconds", "For how long the oldest holder has held whose command has not ended.",
		func(l *lockTotals) (float64, bool) { return l.oldestHolder.Seconds(), l.hasHolderAge }},
	{"golock_oldest_waiter_age_seconds", "For how long the oldest waiter has waited.",
		func(l *lockTotals) (float64, bool) { return l.oldestWaiter.Seconds(), l.hasWaiterAge }},
	{"golock_lease_left_seconds", "Time until the first lease ends unless it is renewed, on stores with leases.",
		func(l *lockTotals) (float64, bool) { return l.leaseLeft.Seconds(), l.hasLease }},
}

// metricsText writes the entries of a store as metrics, in Prometheus' text format, version 0.0.4. A lock
// that was asked for by its name is there even if nobody uses it.
func metricsText(entries []locks.Entry, store, asked string) string {
	all := map[string]*lockTotals{}
	if asked != "" {
		all[asked] = &lockTotals{}
	}
	for _, e := range entries {
		if all[e.Name] == nil {
			all[e.Name] = &lockTotals{}
		}
		all[e.Name].add(e)
	}
	names := slices.Sorted(maps.Keys(all))
	var b strings.Builder
	for _, m := range lockMetrics {
		head := fmt.Sprintf("# HELP %s %s\n# TYPE %s gauge\n", m.name, m.help, m.name)
		for _, name := range names {
			value, has := m.value(all[name])
			if !has {
				continue
			}
			labels := fmt.Sprintf(`name="%s",store="%s"`, report.EscapeLabel(name), report.EscapeLabel(store))
			fmt.Fprintf(&b, "%s%s{%s} %s\n", head, m.name, labels, strconv.FormatFloat(value, 'f', 3, 64))
			head = ""
		}
	}
	return b.String()
}
