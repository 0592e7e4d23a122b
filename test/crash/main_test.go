// Package crash_test attacks the built program from outside: kill -9, stops and
// removed lock files at random moments, queues of hundreds, and whatever can
// happen to the servers of networked stores.
//
// This file pins nothing. It builds the program and the judge. The judge
// (testdata/judge.c) is the command of every golock here and decides about
// exclusion with means that have nothing to do with golock's.
//
// Random choices come from one seed, which every test logs; GOLOCK_TEST_SEED
// sets it. GOLOCK_CAMPAIGN=10m makes the campaigns go on for that long together.
package crash_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"golock/locks/sql/sqltest"
)

var (
	golock   string   // the program under test
	judge    []string // the judge
	seed     uint64
	campaign time.Duration // for all campaigns together, beyond what they do anyway
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == goJudge {
		os.Exit(judgeMain(os.Args[2:]))
	}
	flag.Parse()
	// What runs beside others here waits for most of its time.
	_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func setUp(m *testing.M) (code int, err error) {
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("GOLOCK_TEST_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 1, fmt.Errorf("GOLOCK_TEST_SEED: %w", err)
		}
	}
	if text := os.Getenv("GOLOCK_CAMPAIGN"); text != "" {
		if campaign, err = time.ParseDuration(text); err != nil {
			return 1, fmt.Errorf("GOLOCK_CAMPAIGN: %w", err)
		}
	}
	// Commands whose golock was killed become children of this process, which
	// therefore knows when the last one has ended (world.drain).
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("prctl: %w", err)
	}
	dir, err := os.MkdirTemp("", "golock-crash-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	golock = filepath.Join(dir, "golock")
	if built := os.Getenv(builtVariable); built != "" { // by the process that started this one
		golock = built
		if judge, err = buildJudge(dir); err != nil {
			return 1, err
		}
		return sqltest.Main(m), nil
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", golock, ".")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("building golock: %w\n%s", err, out)
	}
	if judge, err = buildJudge(dir); err != nil {
		return 1, err
	}
	return sqltest.Main(m), nil
}

// buildJudge compiles the judge, static if that can be: it starts twice as
// fast. Where there is no gcc, the test binary plays it.
func buildJudge(dir string) ([]string, error) {
	path := filepath.Join(dir, "judge")
	if _, err := exec.LookPath("gcc"); err != nil {
		self, err := os.Executable()
		return []string{self, goJudge}, err
	}
	var out []byte
	var err error
	for _, how := range []string{"-static", "-fPIE"} {
		cc := exec.Command("gcc", "-O2", "-Wall", "-Werror", how, "-o", path, filepath.Join("testdata", "judge.c"))
		if out, err = cc.CombinedOutput(); err == nil {
			return []string{path}, nil
		}
	}
	return nil, fmt.Errorf("building the judge: %w\n%s", err, out)
}

// builtVariable tells a process of this test that was started in another
// namespace where the program is.
const builtVariable = "GOLOCK_CRASH_BUILT"

// newRand gives a test its own sequence of the seed, which it logs.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("GOLOCK_TEST_SEED=%d", seed)
	var stream uint64
	for _, c := range t.Name() {
		stream = stream*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// limit is how long a test waits for something that has to happen. It is no
// promise of golock's: only a hang or a lost wake-up ever uses it up.
const limit = 60 * time.Second

// await returns once cond holds and fails the test if it does not come true.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !within(limit, cond) {
		t.Fatalf("waited %v in vain: %s", limit, what)
	}
}

// within reports whether cond came true before d was over.
func within(d time.Duration, cond func() bool) bool {
	pause := 50 * time.Microsecond
	for end := time.Now().Add(d); !cond(); time.Sleep(pause) {
		if time.Now().After(end) {
			return cond()
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
	return true
}

// environment is the caller's without golock's variables.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GOLOCK_") {
			env = append(env, e)
		}
	}
	return env
}
