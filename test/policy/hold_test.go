package policy_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// One crontab line on thirty hosts whose clocks differ by less than the hold:
// exactly one run per tick, however soon the command ends. The fence tells when
// a run was granted, on the store's clock.
func TestOneRunPerTick(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const (
			hosts = 30
			ticks = 3
			hold  = 4 * time.Second
			skew  = 3 * time.Second // and a second for a busy machine to start golock
			tick  = hold + 2*time.Second
		)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		var late [hosts]time.Duration
		for i := range late {
			late[i] = time.Duration(random.Int64N(int64(skew)))
		}
		slices.Sort(late[:])
		var runs []time.Time
		begin := time.Now()
		for n := range ticks {
			var all []*proc
			for _, l := range late {
				time.Sleep(time.Until(begin.Add(time.Duration(n)*tick + l)))
				all = append(all, w.run("tick", "-n", "-E", "0", "--hold", hold.String(), ttl(w), "--", "sh", "-c", "echo $GOLOCK_FENCE >>runs"))
			}
			for _, p := range all {
				if code := p.code(); code != 0 || p.said() != "" {
					t.Errorf("code %d, stderr %q", code, p.said())
				}
			}
			ended := time.Now()
			runs = nil
			for _, line := range strings.Fields(w.await("runs")) {
				fence, err := strconv.ParseInt(line, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				runs = append(runs, time.UnixMicro(fence))
			}
			switch {
			case len(runs) <= n:
				t.Fatalf("%d runs in %d ticks", len(runs), n+1)
			case len(runs) > n+1 && ended.Before(runs[n].Add(hold)):
				t.Fatalf("%d runs in %d ticks", len(runs), n+1)
			case len(runs) > n+1: // the machine was too slow for the skew
				t.Logf("the last host came %v after the first", ended.Sub(runs[n]))
			}
		}
		for i := range runs[1:] {
			if apart := runs[i+1].Sub(runs[i]); apart < hold {
				t.Errorf("two runs within %v", apart)
			}
		}
	})
}

// What could not be started has no hold: the next host may have what this one
// lacks.
func TestNoHoldWithoutACommand(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for code, args := range map[int][]string{127: {"--", "/golock-no-such-program"}, 126: {"--", "/"}} {
			p := w.run("x", append([]string{"--hold", "1h", ttl(w)}, args...)...)
			if got := p.code(); got != code {
				t.Errorf("code %d, want %d: %s", got, code, p.said())
			}
			p = w.run("x", "-n", ttl(w), "--", "true")
			if got := p.code(); got != 0 {
				t.Errorf("after %d: code %d: %s", code, got, p.said())
			}
		}
	})
}

// The hold counts from the start, and the next in line is let in when it is
// over, whether the command ended or golock was killed.
func TestNextAfterHold(t *testing.T) {
	for name, kill := range map[string]bool{"ended": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				const hold = 3500 * time.Millisecond
				begin := time.Now()
				first := w.run("h", "--hold", hold.String(), ttl(w), "--", "sh", "-c", "echo $$ >first; exec sleep 1")
				pid := w.await("first")
				if kill {
					first.signal(syscall.SIGKILL)
				}
				next := w.run("h", ttl(w), "--", "sh", "-c", "echo in >next")
				w.waiting("h", 1)
				first.code()
				w.eventually("the command has ended", func() bool { return !alive(pid) })
				if w.exists("next") {
					t.Error("the next one is in before the hold is over")
				}
				w.run("h", "-n", "--", "true").expect(75, "held until")
				next.expect(0)
				if took := time.Since(begin); took < hold {
					t.Errorf("the next one was in after %v", took)
				}
			})
		})
	}
}

// ttl is a flag for a short lease where there is one; elsewhere one that
// changes nothing.
func ttl(w *world) string {
	if w.isLocal() {
		return "--max=1"
	}
	return "--ttl=2s"
}
