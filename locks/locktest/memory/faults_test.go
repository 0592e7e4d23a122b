package memory_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/locktest/memory"
	"golock/locks/queue"
	"golock/test/testkit"
)

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// picker picks one in five of the requests that a fault may meet.
type picker struct{ rng *rand.Rand }

// picks spares a Leave, which is tried only once, and an Evict, which no longer knows whether there was an entry.
func (p *picker) picks(q queue.Question) bool {
	return q.Step != queue.Leave && q.Step != queue.Evict && p.rng.IntN(5) == 0
}

// picksKnown also spares newcomers. For the model a Join is one event. A Join of which one copy waits in the queue while
// another one is on its way is more: TestLostAnswers has such joins.
func (p *picker) picksKnown(q queue.Question) bool {
	isNewcomer := q.Step == queue.Join && q.Entry.Claim.Ticket == 0
	return !isNewcomer && p.picks(q)
}

// What goes wrong on the way changes when something happens, but not what: the histories are still the model's.
func TestFaults(t *testing.T) {
	loseIf := func(picks func(queue.Question) bool, fate memory.Fate) func(queue.Question) memory.Fate {
		return func(q queue.Question) memory.Fate {
			if picks(q) {
				return fate
			}
			return memory.Arrive
		}
	}
	for name, add := range map[string]func(*memory.Faults, *picker){
		"requests get lost": func(f *memory.Faults, p *picker) { f.Lose = loseIf(p.picks, memory.LoseRequest) },
		"answers get lost":  func(f *memory.Faults, p *picker) { f.Lose = loseIf(p.picksKnown, memory.LoseAnswer) },
		"wake-ups get lost": func(f *memory.Faults, p *picker) { f.LoseWakeUp = func() bool { return p.rng.IntN(2) == 0 } },
		"requests are late": func(f *memory.Faults, p *picker) {
			brief := f.Delay
			f.Delay = func(q queue.Question) time.Duration {
				if p.picksKnown(q) {
					return upTo(p.rng, 10*time.Second) // an attempt lasts 2 s at most
				}
				return brief(q)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) memory.Faults {
				rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
				f := memory.Faults{Delay: func(queue.Question) time.Duration { return upTo(rng, 3*time.Millisecond) }}
				add(&f, &picker{rng})
				return f
			}, func(e *locktest.Engine) { e.Only = []string{"Histories"} })
		})
	}
}

func open(t *testing.T, table *memory.Table) locks.Store {
	var server memory.Server
	s, err := server.Open(server.Add(table))
	testkit.Must(t, err)
	return s
}

func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := map[queue.Step]int32{}
		table := &memory.Table{Faults: memory.Faults{Lose: func(q queue.Question) memory.Fate {
			if left[q.Step] == 0 {
				return memory.Arrive
			}
			left[q.Step]--
			return memory.LoseAnswer
		}}}
		s := open(t, table)
		locktest.LostAnswers(t, s, s, func(step string, times int32) { left = map[queue.Step]int32{queue.Step(step): times} })
	})
}

// A question that arrives when its owner has long left brings nobody back, also if a hold kept the slot for a while.
func TestLateQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const brief, late = time.Millisecond, 10 * time.Second
		isFirst := true
		s := open(t, &memory.Table{Faults: memory.Faults{Delay: func(q queue.Question) time.Duration {
			isLate := isFirst && q.Step == queue.Join && q.Entry.Claim.Ticket != 0
			if isLate {
				isFirst = false
				return late
			}
			return brief
		}}})
		holder := locktest.AcquireAtOnce(t, s, "n")
		waiter := locktest.Enqueue(t, s, "n", locktest.Hold(2*time.Second))
		locktest.Release(t, holder) // wakes the waiter, whose first question is late
		locktest.Release(t, waiter.ExpectGrant())
		time.Sleep(late)
		locktest.ExpectEntries(t, s, "n", locktest.Counts{})
	})
}

// A table that forgets everything grants nothing until its holders have had the time to come back. They get the
// slots that they had, and waiters get their places.
func TestForgetfulTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &memory.Table{Quarantine: 10 * time.Second}
		s := open(t, table)
		a := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3))
		b := locktest.AcquireAtOnce(t, s, "n", locktest.Limit(3), locktest.Weight(2))
		first, second := locktest.Enqueue(t, s, "n"), locktest.Enqueue(t, s, "n")
		table.Lose()
		locktest.ExpectQuarantine(t, s, "m")
		locktest.Renew(t, b)
		locktest.ExpectGrant(t, b.Grant(), locks.Grant{Ref: b.Grant().Ref, Slots: []int{1, 2}, Fence: b.Grant().Fence})
		time.Sleep(30 * time.Second) // a third of the TTL is over: the waiters have asked
		newest := locktest.Enqueue(t, s, "n")
		locktest.Release(t, b)
		granted := first.ExpectGrant() // nobody has restored the other holder, whose lease is not over
		second.ExpectWaiting()
		if granted.Grant().Fence <= max(a.Grant().Fence, b.Grant().Fence) {
			t.Errorf("fence %d after %d", granted.Grant().Fence, b.Grant().Fence)
		}
		locktest.ExpectLost(t, a)
		locktest.Release(t, granted)
		l := second.ExpectGrant()
		newest.ExpectWaiting()
		if !slices.Equal(l.Grant().Slots, []int{0}) {
			t.Errorf("slots %v", l.Grant().Slots)
		}
		locktest.Release(t, l)
		newest.ExpectGrant()
	})
}
