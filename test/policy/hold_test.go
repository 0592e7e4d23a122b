//go:build integration

package policy_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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
