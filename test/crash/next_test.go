//go:build integration

package crash_test

import (
	"slices"
	"testing"
)

// After a death the next one in line is served, and nobody else.
func TestNextGrantAfterAKill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags []string
		judge string
		kill  func(holder, head *proc)
	}{
		{name: "golock and command", kill: func(holder, _ *proc) {
			holder.kill()
			holder.Wait()
			holder.killCommand()
		}},
		// The command outlives its slot, so the judge has no locks.
		{name: "golock with --close", flags: []string{"-o"}, judge: "n", kill: func(holder, _ *proc) { holder.kill() }},
		{name: "command", kill: func(holder, _ *proc) { holder.killCommand() }},
		{name: "head of the queue, then command", kill: func(holder, head *proc) {
			head.kill()
			holder.killCommand()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			s := spec{max: 1, hold: -1, judge: c.judge, flags: c.flags}
			live := []*proc{w.holding(s)} // in the order of the queue, the holder first
			for range 20 {
				for len(live) < 4 {
					live = append(live, w.queued(s))
				}
				holder := live[0]
				c.kill(holder, live[1])
				live = slices.DeleteFunc(live, func(p *proc) bool { return p.judged })
				w.awaitBegin(live[0])
				for _, p := range live[1:] {
					if w.begun(p) {
						t.Fatalf("golock %d was served, number %d is next", p.token, live[0].token)
					}
				}
				holder.killCommand()
			}
			for _, p := range live {
				p.release()
			}
			w.finish()
		})
	}
}
