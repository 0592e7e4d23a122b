//go:build integration

// Package crash_test kills and stops golocks at chosen system calls, and makes servers of networked
// stores fail.
//
// The command of every golock here is the judge (testdata/judge.c), which checks exclusion with locks
// of its own.
//
// Random choices come from a fixed seed; LOCKTEST_SEED sets another one.
package crash_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golock/test/testkit"
)

var judge string

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, 12, func(dir string) error {
		judge = filepath.Join(dir, "judge")
		return testkit.BuildC("testdata/judge.c", judge)
	}))
}

// newRand gives a test its own sequence of the seed, which it logs.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed, stream := testkit.Seed(t), uint64(0)
	t.Logf("LOCKTEST_SEED=%d", seed)
	for _, c := range t.Name() {
		stream = stream*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}
