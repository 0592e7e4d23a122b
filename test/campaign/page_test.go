//go:build integration

package campaign_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file pins that docs/reliability.md says what docs/reliability.json has,
// and writes both.

func TestPageIsOfTheFigures(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "reliability.md")
	text, err := os.ReadFile(strings.TrimSuffix(page, ".md") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(page); string(got) != s.page() {
		t.Errorf("%s is not what make campaign writes of its figures; to write it anew: LOCKTEST_PAGE=again go test -tags integration -run %s ./test/campaign", page, t.Name())
		if os.Getenv("LOCKTEST_PAGE") == "again" {
			if err := os.WriteFile(page, []byte(s.page()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range engines {
		if !slices.ContainsFunc(s.Stores, func(one *storeSummary) bool { return one.Store == e.name }) {
			t.Errorf("%s is not in it", e.name)
		}
	}
}

const pageHead = `# Reliability

What golock does when processes, servers, networks and disks fail at random moments, measured.
What a single fault does is in [operations.md](operations.md#failures). The faults of each store
are in ` + "`docs/reliability.json`" + `.

How it is measured (` + "`test/campaign`" + `):

- In a round three processes, as three hosts, start golocks on several names of one store: readers,
  writers, weights, priorities, a changing ` + "`--max`, `-n`, `--wait`, `--hold`, `--replace`" + `,
  commands that ignore TERM or leave daemons. On a server each host has its own connection.
- Meanwhile faults happen, some of them to the same run. The round ends when all runs have ended.
- Each command locks a byte of one file and looks at the bytes of the others. So the kernel, not a
  clock, says which commands were inside together. golock does not know of that file.
- A judge sees only this. It looks for too many inside, slots given twice, fences that do not grow,
  overtaken waiters, slots that stay taken, wrong exit codes, processes that live too long.
- The judge itself is tested with made-up histories and with golocks broken on purpose.
- A round follows from one number: ` + "`make campaign STORE=redis ROUND=0x...`" + ` plays it again.

` + "`make campaign`" + ` writes this page: ten minutes for each store, five stores at a time;
` + "`DURATION=1h` and `SEED=n`" + ` change that. ` + "`make test`" + ` plays the same few rounds every time.

`

func (s *summary) page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	total, longest := map[kind]int{}, 0.0
	for _, one := range s.Stores {
		longest = max(longest, one.Seconds)
		for k, n := range one.Faults {
			total[k] += n
		}
	}
	fmt.Fprintf(&b, "## %s\n\nUp to %.0f minutes for each store; seed %d; load average %.0f.\n%s.\n\n",
		s.Date, longest/60, s.Seed, s.Load, s.Machine)
	b.WriteString("| store | rounds | runs | commands | runs killed | faults | excused | violations | longest free |\n" +
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, one := range s.Stores {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %.2f s |\n", one.Store, one.Rounds, one.Runs,
			one.Grants, one.Killed, sum(one.Faults), sum(one.Allowed), one.broken(), one.LongestGap)
	}
	b.WriteString(`
- Runs: golocks that were started. Commands: those that got a slot.
- Excused: breaches of what a store does not promise. They are provoked on purpose and are no
  violation. [stores.md](stores.md) lists for each store what is not promised.
- Longest free: the longest time in which a slot was free and somebody waited. Times with a reason
  are left out: an outage, a stopped process, a hold, a lease that has to end first.
`)
	for _, one := range s.Stores {
		if one.broken() > 0 {
			fmt.Fprintf(&b, "\nViolations on %s: %s; rounds %s.\n", one.Store, counts(one.Violations), strings.Join(one.Failing, ", "))
		}
	}
	fmt.Fprintf(&b, "\nFaults on all stores together:\n\n%s.\n", counts(total))
	return b.String()
}

func sum[K comparable](of map[K]int) (n int) {
	for _, count := range of {
		n += count
	}
	return n
}

// counts lists what was counted, in lines of at most 100 columns.
func counts[K cmp.Ordered](of map[K]int) string {
	var b strings.Builder
	column := 0
	for i, k := range slices.Sorted(maps.Keys(of)) {
		item := fmt.Sprintf("%v: %d", k, of[k])
		switch {
		case i > 0 && column+len("; ")+len(item)+len(";") > 100:
			b.WriteString(";\n")
			column = 0
		case i > 0:
			item = "; " + item
		}
		b.WriteString(item)
		column += len(item)
	}
	return b.String()
}
