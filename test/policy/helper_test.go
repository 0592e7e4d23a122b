//go:build integration

// Package policy_test shows how evictions end, by golock break and --replace, when commands are
// stubborn and golocks are stopped or killed. (Who is evicted: locks/locktest, testdata/break.txtar.)
//
// Commands leave files in the sandbox's directory. Those and golock ls order the events.
package policy_test

import (
	"os"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, 16)) }

// world is a sandbox, with names for what this package often does.
type world struct{ *testkit.Sandbox }

func local(t *testing.T) *world { return &world{testkit.New(t, "")} }

// each runs a test on a local store and on a networked one.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	testkit.Each(t, map[string]string{"local": "", "redis": redistest.StoreURL(t)}, func(t *testing.T, _, url string) {
		test(t, &world{testkit.New(t, url)})
	})
}

// sh starts a run of "job" whose command is a script.
func (w *world) sh(script string, flags ...string) *testkit.Process {
	w.T.Helper()
	return w.Job(append(flags, "--", "sh", "-c", script)...).Begin()
}

// breaks is golock break, which must succeed.
func (w *world) breaks(flags ...string) {
	w.T.Helper()
	w.tryBreak(flags...).Expect(w.T, 0)
}

func (w *world) tryBreak(flags ...string) testkit.Result {
	w.T.Helper()
	return w.Golock(append([]string{"break", "--store", w.Store}, flags...)...).Run()
}

// dead fails the test if a process lives.
func (w *world) dead(pid int) {
	w.T.Helper()
	if w.Lives(pid) {
		w.T.Errorf("still running: %s", testkit.Describe([]int{pid}))
	}
}
