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

// picker picks the requests that a fault meets: one in every so many.
type picker struct {
	rng   *rand.Rand
	every int
}

// picks spares what the model does not allow for: a Leave, which is tried only once; an Evict, which no longer knows
// whether there was an entry; and a Join that replaces others, because only its first answer tells whom, or that may
// be refused, because an earlier copy of it may arrive when it would get a slot.
func (p *picker) picks(q queue.Question) bool {
	mayBeRefused := q.NoWait || q.MaxQueue != nil || len(q.Within) > 0
	isSpared := q.Step == queue.Leave || q.Step == queue.Evict ||
		q.Step == queue.Join && (mayBeRefused || q.Entry.Replace != locks.ReplaceNone)
	return !isSpared && p.rng.IntN(p.every) == 0
}

// What goes wrong on the way changes when something happens, but not what: the histories are still the model's.
func TestFaults(t *testing.T) {
	for name, add := range map[string]func(*memory.Faults, *picker){
		"requests get lost": func(f *memory.Faults, p *picker) { f.Lose = lose(memory.LoseRequest, p) },
		"answers get lost":  func(f *memory.Faults, p *picker) { f.Lose = lose(memory.LoseAnswer, p) },
		"wake-ups get lost": func(f *memory.Faults, p *picker) { f.LoseWakeUp = func() bool { return p.rng.IntN(2) == 0 } },
		"requests are late": func(f *memory.Faults, p *picker) {
			brief := f.Delay
			f.Delay = func(q queue.Question) time.Duration {
				if p.picks(q) {
					return upTo(p.rng, 10*time.Second)
				}
				return brief(q)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) memory.Faults {
				rng := rand.New(rand.NewPCG(testkit.Seed(t), 0))
				f := memory.Faults{Delay: func(queue.Question) time.Duration { return upTo(rng, 3*time.Millisecond) }}
				add(&f, &picker{rng: rng, every: 5})
				return f
			}, func(e *locktest.Engine) { e.Only, e.Reserves = []string{"Histories"}, true })
		})
	}
}

func lose(fate memory.Fate, p *picker) func(queue.Question) memory.Fate {
	return func(q queue.Question) memory.Fate {
		if p.picks(q) {
			return fate
		}
		return memory.Arrive
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

// A table that forgets everything grants nothing until its holders have had the time to come back. They get the slots that
// they had, and waiters get their places.
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
