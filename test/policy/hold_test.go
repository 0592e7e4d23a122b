//go:build integration

package policy_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golock/test/testkit"
)

// One crontab line on many hosts whose clocks differ by less than the hold:
// exactly one run per tick, however soon the command ends. The fence tells when
// a run was granted, on the store's clock.
// Slow: a tick is longer than the hold, which bears the differences of clocks.
func TestOneRunPerTick(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		const (
			hosts = 12
			ticks = 2
			hold  = 3 * time.Second
			skew  = 1500 * time.Millisecond // the rest is for a busy machine to start golock
			tick  = hold + skew
		)
		random := rand.New(rand.NewPCG(1, 1))
		var late [hosts]time.Duration
		for i := range late {
			late[i] = time.Duration(random.Int64N(int64(skew)))
		}
		slices.Sort(late[:])
		var runs []time.Time
		begin := time.Now()
		for n := range ticks {
			var all []*testkit.Process
			for _, l := range late {
				time.Sleep(time.Until(begin.Add(time.Duration(n)*tick + l)))
				all = append(all, w.sh("echo $GOLOCK_FENCE >>runs", "-n", "-E", "0", "--hold", hold.String(), w.ttl()))
			}
			for _, p := range all {
				if r := p.Expects(0); r.Stderr != "" {
					t.Errorf("stderr %q", r.Stderr)
				}
			}
			ended := time.Now()
			runs = nil
			for line := range strings.FieldsSeq(w.AwaitFile("runs")) {
				fence, err := strconv.ParseInt(line, 10, 64)
				testkit.Must(t, err)
				runs = append(runs, time.UnixMicro(fence))
			}
			// A machine that is too slow for the skew has another run in the same tick.
			slow := len(runs) > n+1 && !ended.Before(runs[n].Add(hold))
			if len(runs) != n+1 && !slow {
				t.Fatalf("%d runs in %d ticks", len(runs), n+1)
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
		for code, command := range map[int]string{127: "/golock-no-such-program", 126: "/"} {
			w.Job("--hold", "1h", w.ttl(), "--", command).Run().Expect(t, code)
			w.IsFree()
		}
	})
}

// The hold counts from the start, and the next in line is let in when it is
// over, whether the command ended or golock was killed.
func TestNextAfterHold(t *testing.T) {
	const hold = 3 * time.Second
	for name, end := range map[string]func(*testkit.Process){
		"ended": (*testkit.Process).Finish,
		"killed": func(p *testkit.Process) {
			p.Signal(syscall.SIGKILL)
			p.In.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world) {
				begin := time.Now()
				first := w.Job("--hold", hold.String(), w.ttl(), "--", "sh", "-c", "echo begun $$; read x").Start()
				pid := first.ExpectPID("begun")
				end(first)
				w.Eventually("the command has ended", func() bool { return !w.Lives(pid) })
				next := w.Job(w.ttl(), "--", "true").Begin()
				r := w.Job("-n", "--", "true").Run()
				if time.Since(begin) < hold {
					r.Expect(t, 75) // for the killed one's lease or for the hold
				}
				next.Expects(0)
				if took := time.Since(begin); took < hold {
					t.Errorf("the next one was in after %v", took)
				}
			})
		})
	}
}
