package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/queue"
)

// A row is a list of steps, each with its decision: the slots of a holder, the place of a waiter, and
// for a refusal the numbers of holders and waiters. The suite of all stores (locks/locktest) shows
// the rest.
func TestDecide(t *testing.T) {
	for what, text := range map[string]string{
		"nobody overtakes a heavier waiter": `
			a join max=3: granted 0; b join max=3 weight=3: waiting 1; c join max=3 nowait: busy 1+1; d join max=3: waiting 2
			b leave: released, offers d 1`,
		"higher priority first": `
			a join: granted 0; b join: waiting 1; c join priority=1: waiting 1; d join priority=1: waiting 2
			e join priority=-1: waiting 4; a release: released, offers c 0; c release: released, offers d 0
			d release: released, offers b 0; b release: released, offers e 0`,
		"the queue is as long as --max-queue allows": `
			a join queue=0: granted 0; b join queue=0: busy full 1+0; b join queue=0: busy full 1+0; c join queue=1: waiting 1
			d join queue=1: busy full 1+1; e join queue=2: waiting 2; a release: released, offers c 0; f join queue=1: busy full 1+1
			c absent:; g join queue=2: busy full 0+2, offers e 0`,
		"nobody is inside an offer": `
			a join: granted 0; b join: waiting 1; a release: released, offers b 0; c join in=b: waiting 1`,
		"the newest waiter replaces those ahead of it": `
			a join replace=running: granted 0; b join: waiting 1; c join replace=waiting: waiting 2
			d join replace=waiting priority=1: waiting 1; e join replace=waiting queue=1: busy full 1+3
			g join replace=waiting queue=2 priority=-1: waiting 2, replaces d, replaces c, ends d, ends c; c join: evicted
			d late: evicted; a renew: held 0`,
		"an entry that waits already replaces nobody": `
			a join: granted 0; b join replace=waiting: waiting 1; c join replace=waiting priority=1: waiting 1; b join: waiting 2`,
		"a holder is replaced although another one is in the way too": `
			a join max=3: granted 0; b join max=3 replace=running: granted 1; c join max=3 weight=3 replace=running: waiting 1, replaces b`,
		"nobody is replaced twice": `
			a join replace=running: granted 0; b join replace=running: waiting 1, replaces a
			c join replace=running: waiting 1, replaces b, ends b; a release: released, offers c 0`,
		"a slot that only a hold keeps is replaced at once": `
			a join hold replace=running: granted 0; a release: released; b join replace=running: granted 0, replaces a; a late: evicted`,
		"an offer is replaced as a held slot is": `
			a join: granted 0; b join replace=running: waiting 1; a release: released, offers b 0
			c join replace=running: waiting 1, replaces b, ends b; b join: evicted, offers c 0
			d join replace=running: waiting 1, replaces c, ends c; c absent:; look: offers d 0; c join: evicted`,
		"a revoked offer is a place again, which can be replaced": `
			a join: granted 0; b join replace=waiting: waiting 1; a release: released, offers b 0; quarantine
			c join replace=waiting queue=1: waiting 1, replaces b, ends b; d join queue=1: busy full 0+1`,
		"a newcomer lets those before it in, and then itself": `
			a join shared: granted 0; b join replace=waiting: waiting 1; c join shared: waiting 2
			d join shared replace=waiting: waiting 2, replaces b, ends b, offers c 1, offers d 2`,
		"after a loss of data, two waiters with the same ticket have a fixed order": `
			a join: granted 0; b join: waiting 1; crash; c join: waiting 1; d join: waiting 2; e join: waiting 3
			b join: waiting 3; e join: waiting 4`,
		"a command that never ran leaves no hold": `
			a join hold lost: granted 0; b join hold lost: waiting 1; a leave: released, offers b 0; b leave: released
			c join hold lost: granted 0; c expires:; c leave: released nothing; d join: granted 0`,
		"an evicted holder keeps its slot, and its hold is void": `
			a join hold: granted 0; b join: waiting 1; a evict: marked; a evict: marked; a renew: evicted; a late: evicted
			a release: released, offers b 0; a evict: lost; c join hold: waiting 1; b release: released, offers c 0; c join: granted 0
			d join: waiting 1; c evict: marked; c expires:; look: offers d 0`,
		"an evicted waiter is gone, with or without an offer": `
			a join: granted 0; b join: waiting 1; c join: waiting 2; d join: waiting 3; b evict: marked, ends b; b evict: lost
			b join: evicted; a release: released, offers c 0; c evict: marked, ends c; c join: evicted, offers d 0
			c leave: released nothing; d accept:; d renew: held 0`,
		"a late or repeated step brings nobody back": `
			a join lost: granted 0; a late: granted 0; b join lost: waiting 1; b late: waiting 1; c join: waiting 2; b leave: released
			b late: gone; a release: released, offers c 0; a late: gone; a renew: lost; a release: released nothing; c release: released
			c late: gone; d leave: released nothing; d late: gone; e leave nowait: released nothing; e late: busy 0+0; f join: granted 0`,
		"an offer that is not accepted goes to the next waiter, and the place stays": `
			a join: granted 0; b join: waiting 1; c join: waiting 2; a release: released, offers b 0; look:; b absent:; look: offers c 0
			b join: waiting 1; c release: released, offers b 0; b absent:; b join: granted 0`,
		"the queue passes over an absent waiter, and waits for one that is not reachable": `
			a join: granted 0; b join: waiting 1; c join deaf: waiting 2; d join: waiting 3; b absent:; a release: released, due c
			d join: waiting 3, due c; c join: granted 0; b late: waiting 1; c release: released, offers b 0
			b join: granted 0; d leave: released; c join: gone; e join: waiting 1; e absent:; b release: released
			f join nowait: granted 0`,
		"a waiter that asks again is granted a free slot, also behind waiters with an offer": `
			a join max=2 hold: granted 0; b join max=2 hold: granted 1; c join max=2: waiting 1; d join max=2 deaf: waiting 2; a expires:
			b expires:; a holdends:; b holdends:; d join: granted 1, offers c 0`,
		"a view shows only the front of the queue": `
			front 1; a join: granted 0; b join shared: waiting 1; c join shared: waiting 2; d join shared: waiting 3
			e join shared priority=1: waiting 1; c join: waiting 3; f join priority=-1: waiting 5; c leave: released
			a release: released, offers e 0, offers b 1, offers d 2; g join: waiting 1; e release: released; b release: released
			d release: released, offers g 0; g release: released, offers f 0`,
		"the only waiter of a view is granted": `
			front 1; a join: granted 0; b join deaf: waiting 1; c join: waiting 2; a release: released, due b; b join: granted 0`,
		"after a loss of data holders come back, in a quarantine": `
			a join max=2: granted 0; b join max=2: granted 1; c join max=2: waiting 1; crash; d join max=2 nowait: busy 0+0 fits
			e join max=2: waiting 1; b renew: held 1; a renew: held 0; a evict: marked; c join: waiting 2; over; c join: waiting 2
			a release: released, offers e 0`,
		"nobody comes back in its own epoch": `
			a join: granted 0; a expires:; a renew: lost`,
		"a holder comes back only if its slots are free and it fits": `
			a join max=3: granted 0; b join max=2: granted 1; c join max=3: waiting 1; crash; over; x join max=2: granted 0
			a renew: lost; c join: granted 1; b renew: lost; b late: waiting 1`,
		"a holder does not come back beside an exclusive one": `
			a join max=2: granted 0; b join max=2: granted 1; crash; over; x join: granted 0; b renew: lost`,
		"a forgotten grant comes back, and an offer of the time before is void": `
			a join: granted 0; b join: waiting 1; c join: waiting 2; save; a release: released, offers b 0; b accept:; crash
			a release: released; b renew: held 0; over; b release: released, offers c 0; save; crash; c join: waiting 1; over
			look: offers c 0`,
	} {
		t.Run(what, func(t *testing.T) {
			s := newScript()
			for l := range strings.SplitSeq(strings.ReplaceAll(strings.TrimSpace(text), "\n", ";"), ";") {
				step, want, _ := strings.Cut(strings.TrimSpace(l), ":")
				if got := s.do(step); got != strings.TrimSpace(want) {
					t.Fatalf("%s: %q, want %q", step, got, strings.TrimSpace(want))
				}
				for _, e := range s.entries {
					if s.counter < max(e.Fence, e.Claim.Ticket) {
						t.Errorf("%s: the counter is %d after %+v", step, s.counter, e)
					}
				}
			}
		})
	}
}

// Waiters that could have slots have taken them, also those that no offer reaches. The view itself stays as it is.
func TestServed(t *testing.T) {
	entry := func(id string, s queue.State, weight int, ticket int64) queue.Entry {
		return queue.Entry{ID: id, State: s, Claim: locks.Claim{Weight: weight, Max: 4, Ticket: ticket}}
	}
	v := queue.View{
		Holders: []queue.Entry{entry("h", queue.Holding, 1, 1)},
		Waiters: []queue.Entry{
			entry("a", queue.Waiting, 1, 2), entry("b", queue.Waiting, 1, 3), entry("c", queue.Waiting, 2, 4), entry("d", queue.Waiting, 1, 5),
		},
		Total: 4,
	}
	before := fmt.Sprint(v)
	served := v.Served()
	ids := func(all []queue.Entry) (text string) {
		for _, e := range all {
			text += e.ID
		}
		return text
	}
	if ids(served.Holders) != "hab" || ids(served.Waiters) != "cd" || served.Total != 2 {
		t.Errorf("%+v", served)
	}
	if fmt.Sprint(v) != before {
		t.Errorf("the view is changed: %+v", v)
	}
}
