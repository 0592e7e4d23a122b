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

What golock does when processes, servers, networks and disks fail at random moments, measured. This page is
written by ` + "`make campaign`" + `, which anybody can run: ten minutes for each store, five at the same time (` + "`DURATION=1h`, `SEED=n`, `STORE=redis`" + ` change that). A short form, the same few rounds every time, is part of
` + "`make test`" + `. The same figures for programs are beside it in the repository, ` + "`docs/reliability.json`" + `. What each single fault does is in [operations.md](operations.md); here they come together.

How it is done (` + "`test/campaign`" + `):

- **Rounds.** In each, three driver processes, as three hosts, start golocks on several names of one store: readers and writers, weights, priorities, a ` + "`--max`" + ` that changes,
  ` + "`-n`, `--wait`, `--max-queue`, `--hold`, `--replace`, `--tree`, `--time-limit`, `--exec`, `--close`" + `, commands that leave daemons and children behind or do not care about TERM. On a server
  each host has its own way there, and on half of them the clock since boot is another. Meanwhile the faults of the tables below happen, some
  of them to the same run. Then it is quiet until all have ended.
- **The recorder** hears from the commands by a socket that golock knows nothing of. No clock says whether two were alive together: each
  has locked a byte of one file, and looks at all others' when it begins; the kernel frees that of a process that ends before anybody can be let in because of it.
- **The judge** sees only that. It looks for more inside than the rule allows, a slot number given twice, a lock that is not free in the end (` + "`golock run -n` works, `golock ls` shows nothing" + `),
  somebody who waits for what is free, somebody who was overtaken, processes that live when they should be dead, exit codes other than documented, fences that do not grow. It is tested itself:
  with made-up histories, and with golocks that were broken on purpose.
- **Seeds.** All that is chosen at random in a round follows from one number, which a failure prints: ` + "`make campaign STORE=redis ROUND=0x...`" + ` plays that round again.
- What is **not promised** happens here, too; what came of it is counted, and is no violation. ("A machine that is held up": a thread that wanted to run on a processor
  did not for 25 ms and more, just before a kill at the end of a lease came too late.)

`

func (s *summary) page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	fmt.Fprintf(&b, "%s, %s, load average of 15 minutes %.0f, seed %d.\n\n", s.Date, s.Machine, s.Load, s.Seed)
	b.WriteString("| store | rounds | minutes | golocks | commands | killed golocks | faults | violations | longest time free with somebody waiting |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, one := range s.Stores {
		faults := 0
		for _, n := range one.Faults {
			faults += n
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f | %d | %d | %d | %d | **%d** | %.2f s |\n",
			one.Store, one.Rounds, one.Seconds/60, one.Runs, one.Grants, one.Killed, faults, one.broken(), one.LongestGap)
	}
	b.WriteString(`
Golocks: as many as were started; commands: as many as got a slot (the others were refused as they had asked for, or killed or told to end before). The last column leaves
out what has a reason: an outage, a stopped process, a hold, a killed golock whose lease has to end first.
`)
	for _, one := range s.Stores {
		fmt.Fprintf(&b, "\n## %s\n\n| fault | times |\n|---|---|\n", one.Store)
		kinds := slices.SortedFunc(maps.Keys(one.Faults), func(a, b kind) int { return cmp.Compare(a, b) })
		for _, k := range kinds {
			fmt.Fprintf(&b, "| %s | %d |\n", k, one.Faults[k])
		}
		b.WriteString("\n")
		if one.broken() == 0 {
			fmt.Fprintf(&b, "No violation. %d golocks were refused as they had asked for, %d ended with 79: their slot was taken back, or could not be kept.\n", one.Refused, one.Lost)
		} else {
			b.WriteString("**Violations:**")
			for _, k := range breaches {
				if n := one.Violations[k]; n > 0 {
					fmt.Fprintf(&b, " %s %d", k, n)
				}
			}
			fmt.Fprintf(&b, "; rounds %s.\n", strings.Join(one.Failing, ", "))
		}
		b.WriteString("\nNot promised, and how often it was seen:\n\n")
		for _, text := range limits(one.Store) {
			fmt.Fprintf(&b, "- %s: %d\n", text, one.Allowed[text])
		}
		if more := beyond(one.Store); len(more) > 0 {
			b.WriteString("\nNot promised, and not tried here:\n\n")
			for _, text := range more {
				fmt.Fprintf(&b, "- %s\n", text)
			}
		}
	}
	return b.String()
}

// limits are what may be seen on a store and is not promised.
func limits(store string) (list []string) {
	for _, e := range engines {
		if e.name != store {
			continue
		}
		if e.leased {
			list = append(list, notBoth, notBothStop, notHeldUp)
		} else {
			list = append(list, notClosed)
		}
		if e.queue && !e.leased {
			list = append(list, notRemovedLine, notHold)
		}
		if !e.mutual {
			list = append(list, notRemoved)
		}
		if e.name == "redis" {
			list = append(list, notFlushed, notVanished, notHold)
		}
		if e.server() {
			list = append(list, notClock)
		}
	}
	return list
}

// beyond is what is not promised and does not happen in a campaign.
func beyond(store string) []string {
	frozen := "a machine that is frozen as a whole, with its clocks"
	switch store {
	case "local":
		return []string{"a waiter stopped with SIGSTOP holds up those behind it (it happens here, and is taken into account)", "a restart of the machine"}
	case "flock", "fcntl", "bind":
		return []string{"order, and fences: there are none"}
	case "redis":
		return []string{frozen, "a failover to a replica that does not know of a grant (`test/crash: TestRedisSentinelFailover`)"}
	case "mariadb", "postgres":
		return []string{frozen, "a server that forgets what it has committed, or a replica that does not know of it"}
	}
	return []string{frozen, "a directory that is removed and made anew while somebody holds", "a file system that shows an old directory (NFS with `nocto`, mirrors)"}
}
