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
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golock/test/testkit"
)

var judge string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "golock-judge-")
	if err == nil {
		judge = filepath.Join(dir, "judge")
		err = testkit.BuildC("testdata/judge.c", judge)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	testkit.Parallel(12) // most of the time they wait
	os.Exit(testkit.Main(m, func() { os.RemoveAll(dir) }))
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
