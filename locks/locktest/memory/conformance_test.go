package memory_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golock/locks/locktest"
	"golock/locks/locktest/memory"
	"golock/locks/queue"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Library(m)) }

// run runs the suite on tables with the faults that the function makes for each test.
func run(t *testing.T, faults func(*testing.T) memory.Faults, change func(*locktest.Engine)) {
	var server memory.Server
	e := locktest.Engine{
		Fresh: func(t *testing.T) string { return server.Add(&memory.Table{Faults: faults(t)}) },
		Open:  server.Open, Kill: memory.Kill, TTL: 3 * time.Second, Blind: true,
	}
	change(&e)
	locktest.Run(t, e)
}

func TestConformance(t *testing.T) {
	rule := broken[os.Getenv(brokenVariable)] // none, but in the processes of TestBrokenRules
	decide := func(*testing.T) memory.Faults { return memory.Faults{Decide: rule.decide} }
	run(t, decide, func(e *locktest.Engine) { e.Only = rule.tests })
}

// brokenVariable names the rule that a process of TestBrokenRules breaks.
const brokenVariable = "LOCKTEST_BROKEN"

// brokenRule is a decision that breaks a rule, and the tests of the suite that must notice it.
type brokenRule struct {
	decide func(queue.View, queue.Question) queue.Decision
	tests  []string
}

var broken = map[string]brokenRule{
	"one holder is overlooked": {func(v queue.View, q queue.Question) queue.Decision {
		if q.Step == queue.Join && len(v.Holders) > 1 {
			v.Holders = v.Holders[1:]
		}
		return queue.Decide(v, q)
	}, []string{"Histories"}},
	"the last waiter is the next": {func(v queue.View, q queue.Question) queue.Decision {
		for i := range v.Waiters {
			v.Waiters[i].Claim.Ticket = -v.Waiters[i].Claim.Ticket
		}
		slices.Reverse(v.Waiters)
		return queue.Decide(v, q)
	}, []string{"Histories"}},
	"a tombstone is overlooked": {func(v queue.View, q queue.Question) queue.Decision {
		if v.Caller != nil && v.Caller.State == queue.Tombstone {
			v.Caller = nil
		}
		return queue.Decide(v, q)
	}, []string{"EvictWaiter"}},
	"an evicted holder is removed at once": {func(v queue.View, q queue.Question) queue.Decision {
		if q.Step == queue.Evict {
			q.Step = queue.Leave
		}
		return queue.Decide(v, q)
	}, []string{"EvictHolder"}},
}

// The suite can fail: it does on a table that breaks a rule.
func TestBrokenRules(t *testing.T) {
	for name, rule := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite := exec.Command("/proc/self/exe", "-test.run=^TestConformance$")
			suite.Env = append(os.Environ(), brokenVariable+"="+name, "GORACE=atexit_sleep_ms=0")
			text, err := suite.CombinedOutput()
			for _, test := range rule.tests {
				if err == nil || !strings.Contains(string(text), "--- FAIL: TestConformance/"+test+" ") {
					t.Errorf("%s passes: %v\n%s", test, err, text)
				}
			}
		})
	}
}
