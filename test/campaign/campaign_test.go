//go:build integration

package campaign_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file pins the promises of every store, together: whatever is killed,
// stopped, cut off or filled, never more inside than the rule allows, no slot
// lost or twice, nobody forgotten or overtaken, nothing left alive, the right
// exit codes, fences that grow.

func TestCampaign(t *testing.T) {
	only := strings.Split(os.Getenv("LOCKTEST_STORE"), ",")
	all := &summary{Seed: seed, Date: time.Now().UTC().Format(time.DateOnly), Machine: machine()}
	t.Run("stores", func(t *testing.T) {
		for _, e := range engines {
			if only[0] != "" && !slices.Contains(only, e.name) {
				continue
			}
			s := all.add(e)
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				e.attack(t, s)
			})
		}
	})
	if page := os.Getenv("LOCKTEST_PAGE"); page != "" && onlyRound == 0 {
		if err := all.write(page); err != nil {
			t.Error(err)
		}
	}
}

// attack plays rounds: the engine's few of the short form, or until the time is over.
func (e *engine) attack(t *testing.T, s *storeSummary) {
	here := e.open(t, e)
	rounds := e.short
	if onlyRound != 0 {
		rounds = []uint64{onlyRound}
	}
	h := fnv.New64a()
	fmt.Fprint(h, e.name)
	seeds := rand.New(rand.NewPCG(seed, h.Sum64()))
	for end := time.Now().Add(duration); s.broken() < 20; {
		number := seeds.Uint64()
		if duration == 0 || onlyRound != 0 {
			if s.Rounds == len(rounds) {
				break
			}
			number = rounds[s.Rounds]
		} else if time.Now().After(end) {
			break
		}
		p := newPlan(e, number)
		begun := time.Now()
		list, err := e.play(here, p)
		if err != nil {
			t.Fatal(err)
		}
		s.count(p, list, time.Since(begun))
		for i, h := range list {
			for _, f := range judge(h) {
				if s.found(f); f.excuse == "" {
					e.report(t, s, number, i, f, h)
				}
			}
		}
	}
	t.Log(s)
}

func (e *engine) report(t *testing.T, s *storeSummary, number uint64, name int, f finding, h *history) {
	if again := fmt.Sprintf("%#x", number); !slices.Contains(s.Failing, again) {
		s.Failing = append(s.Failing, again)
	}
	t.Errorf("%s: %s\nplay it again: make campaign STORE=%s ROUND=%#x", f.kind, f.text, e.name, number)
	if dir := os.Getenv("LOCKTEST_RECORDS"); dir != "" {
		file := fmt.Sprintf("%s/%s-%x-%d", dir, e.name, number, name)
		_ = os.WriteFile(file, []byte(f.kind+": "+f.text+"\n"+h.text()), 0o600)
	}
}
