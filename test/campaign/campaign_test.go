//go:build integration

// Package campaign_test attacks every store with random schedules of faults,
// for as long as it is told to, and judges what came of it.
//
// Golocks are started as by several hosts. Their commands tell a recorder of their
// lives by a socket that golock knows nothing of; who was alive together is what the
// kernel says, by locks on bytes of a file. A judge, which sees only that, looks for
// promises that were broken. What is not promised happens here, too, and is counted
// apart.
//
// All that is chosen at random in a round follows from the round's seed, which
// a failure prints with the command that plays it again. docs/reliability.md is
// written by this package: make campaign. The variables are in docs/development.md;
// LOCKTEST_CAMPAIGN=10m is for how long each store is attacked, with random rounds.
// Without it the same few rounds are played every time, with half of the requests.
package campaign_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/test/islands"
	"golock/test/testkit"
)

var (
	member      string   // the command
	environment []string // of golocks
	seed        = uint64(time.Now().UnixNano())
	onlyRound   uint64
	duration    time.Duration // of a store's attack; 0: the short form
	mayMount    bool          // the mounts are nobody else's
)

func TestMain(m *testing.M) {
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	parallel := len(engines) // most of the time they wait
	if duration > 0 {
		parallel = max(5, runtime.GOMAXPROCS(0))
	}
	os.Exit(testkit.Main(m, parallel, func(dir string) error {
		member = filepath.Join(dir, "member")
		return testkit.BuildC("testdata/member.c", member)
	}))
}

func setUp() (err error) {
	if mayMount, err = islands.Isolate(); err != nil {
		return err
	}
	if mayMount {
		// The disk is not what is tried: servers write as safely, and faster.
		if err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "size=2g,mode=1777"); err != nil {
			return fmt.Errorf("tmpfs: %w", err)
		}
		os.Setenv("TMPDIR", "/mnt")
	}
	for name, to := range map[string]*uint64{"LOCKTEST_SEED": &seed, "LOCKTEST_ROUND": &onlyRound} {
		if text := os.Getenv(name); text != "" {
			if *to, err = strconv.ParseUint(text, 0, 64); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if text := os.Getenv("LOCKTEST_CAMPAIGN"); text != "" {
		if duration, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("LOCKTEST_CAMPAIGN: %w", err)
		}
	}
	return nil
}

func TestCampaign(t *testing.T) {
	environment = os.Environ() // before clock.under changes it
	watchStalls()
	serveStarts()
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
	rounds := e.short
	if testkit.Deep() {
		rounds = slices.Concat(e.short, e.deep)
	}
	if onlyRound != 0 {
		rounds = []uint64{onlyRound}
	}
	if duration == 0 && len(rounds) == 0 {
		return
	}
	here := e.open(t, e)
	h := fnv.New64a()
	fmt.Fprint(h, e.name)
	seeds := rand.New(rand.NewPCG(seed, h.Sum64()))
	for end := time.Now().Add(duration); sum(s.Violations) < 20; {
		number := seeds.Uint64()
		if duration == 0 || onlyRound != 0 {
			if s.Rounds == len(rounds) {
				break
			}
			number = rounds[s.Rounds]
		} else if time.Now().After(end) {
			break
		}
		p, begun := newPlan(e, number), time.Now()
		list := e.play(t, here, p)
		s.count(p, list, time.Since(begun))
		for i, h := range list {
			for _, f := range judge(h) {
				if f.excuse != "" {
					s.Allowed[f.excuse]++
					continue
				}
				s.Violations[f.kind]++
				e.report(t, s, number, i, f, h)
			}
		}
	}
	t.Logf("%+v", *s)
}

func (e *engine) report(t *testing.T, s *storeSummary, number uint64, name int, f finding, h *history) {
	if again := fmt.Sprintf("%#x", number); !slices.Contains(s.Failing, again) {
		s.Failing = append(s.Failing, again)
	}
	again := fmt.Sprintf("make campaign STORE=%s ROUND=%#x", e.name, number)
	if duration == 0 { // which has fewer requests
		again = fmt.Sprintf("LOCKTEST_STORE=%s LOCKTEST_ROUND=%#x go test -count 1 -tags integration -run '^TestCampaign$' ./test/campaign", e.name, number)
	}
	t.Errorf("%s: %s\nplay it again: %s", f.kind, f.text, again)
	if dir := os.Getenv("LOCKTEST_RECORDS"); dir != "" {
		file := fmt.Sprintf("%s/%s-%x-%d", dir, e.name, number, name)
		_ = os.WriteFile(file, []byte(f.kind+": "+f.text+"\n"+h.text()), 0o600)
	}
}
