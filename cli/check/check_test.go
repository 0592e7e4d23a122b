package check

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/test/testkit"
)

// TestMain makes the test binary also the program of the children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ChildName {
		if err := Child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testOf returns a test whose tool is a shell script that runs the child.
func testOf(t *testing.T, script string) *Test {
	program, err := os.Executable()
	testkit.Must(t, err)
	return &Test{
		Command: func(child []string) []string { return append([]string{"sh", "-c", script, "sh"}, child...) },
		Env:     os.Environ(),
		Program: program, Dir: t.TempDir(), Loops: 20, Children: 4, Limit: 1, Patience: time.Minute,
		Progress: func(int, int) {},
	}
}

// A lock that is never free again ends the test. A lock file whose maker has crashed is such a lock.
func TestStalled(t *testing.T) {
	t.Parallel()
	test := testOf(t, `until mkdir "$DIR/lock" 2>/dev/null; do sleep 0.5; done; "$@"`)
	test.Env = append(test.Env, "DIR="+t.TempDir())
	test.Patience = 5 * time.Second // Slow: longer than a busy machine needs to start a child
	r, err := test.Do(context.Background())
	if err != nil || r.Passed || r.Counter != 1 || r.Failed != 0 {
		t.Fatalf("%+v, %v, want one addition and a failed test", r, err)
	}
	if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "nothing happened for 5s") {
		t.Errorf("problems %q", r.Problems)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if line, _ := os.ReadFile(file); bytes.Contains(line, []byte(test.Dir)) {
			t.Errorf("after the test still runs: %q", line)
		}
	}
}

// The test finds a tool whose lock is free after the tool has died, although its child is inside. It
// finds that also where the next child takes longer to start than a child usually stays.
func TestFreeTooEarly(t *testing.T) {
	t.Parallel()
	test := testOf(t, `exec 9>"$DIR/lock"; flock 9; sleep 0.05
		if [ "$6" != 30000000 ]; then "$@" 9>&-; exit; fi
		"$@" 9>&- &
		kill -9 $$`)
	test.Env = append(test.Env, "DIR="+t.TempDir())
	test.Loops, test.Children, test.Kill = 30, 2, 50
	r, err := test.Do(context.Background())
	if err != nil || r.Passed || !strings.Contains(strings.Join(r.Problems, "; "), "inside at the same time") {
		t.Errorf("%+v, %v, want two children inside at the same time", r, err)
	}
}

// A run whose tool could not be started has taken no time: the times of later kills come from the average.
func TestNotStarted(t *testing.T) {
	test := testOf(t, `exit`)
	test.Dir += "/missing"
	r := &run{test: test, kill: killTime{inside: true}}
	began := now()
	r.do(context.Background())
	if r.code != 127 || r.started < began || r.ended < r.started {
		t.Errorf("exit code %d, from %d to %d, begun after %d", r.code, r.started, r.ended, began)
	}
}

// A tool that prints 100 kB on one line passes.
func TestNoise(t *testing.T) {
	t.Parallel()
	test := testOf(t, `exec 9>"$DIR/lock"; flock 9; yes | head -c 100000 >&2; "$@"`)
	test.Env = append(test.Env, "DIR="+t.TempDir())
	if r, err := test.Do(context.Background()); err != nil || !r.Passed {
		t.Errorf("%+v, %v, want a test that passes", r, err)
	}
}

// Words go through a shell unchanged.
func TestQuote(t *testing.T) {
	words := []string{"printf", "[%s]", "a b", "it's", `"$HOME"`, "", "*", "\\", "new\nline", "ä"}
	out, err := exec.Command("sh", "-c", Quote(words)).Output()
	if want := "[" + strings.Join(words[2:], "][") + "]"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}
