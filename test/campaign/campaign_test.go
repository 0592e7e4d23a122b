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

// shortForm is for how long a store is attacked where nobody says.
const shortForm = 6 * time.Second

func TestCampaign(t *testing.T) {
	only := strings.Split(os.Getenv("GOLOCK_TEST_STORE"), ",")
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
	if page := os.Getenv("GOLOCK_TEST_PAGE"); page != "" && onlyRound == 0 {
		if err := all.write(page); err != nil {
			t.Error(err)
		}
	}
}

// attack plays rounds until the time is over.
func (e *engine) attack(t *testing.T, s *storeSummary) {
	t.Logf("GOLOCK_TEST_SEED=%d", seed)
	here := e.open(t, e)
	h := fnv.New64a()
	fmt.Fprint(h, e.name)
	seeds := rand.New(rand.NewPCG(seed, h.Sum64()))
	limit := duration
	if limit == 0 {
		limit = shortForm
	}
	for end := time.Now().Add(limit); time.Now().Before(end) && s.broken() < 20; {
		number := seeds.Uint64()
		if onlyRound != 0 {
			number = onlyRound
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
				if s.found(f); f.excuse != "" {
					continue
				}
				if again := fmt.Sprintf("%#x", number); !slices.Contains(s.Failing, again) {
					s.Failing = append(s.Failing, again)
				}
				t.Errorf("%s: %s\nplay it again: make campaign STORE=%s ROUND=%#x", f.kind, f.text, e.name, number)
				if dir := os.Getenv("GOLOCK_TEST_RECORDS"); dir != "" {
					file := fmt.Sprintf("%s/%s-%x-%d", dir, e.name, number, i)
					_ = os.WriteFile(file, []byte(f.kind+": "+f.text+"\n"+h.text()), 0o600)
				}
			}
		}
		if onlyRound != 0 {
			break
		}
	}
	t.Log(s)
}
