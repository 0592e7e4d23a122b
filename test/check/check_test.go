//go:build integration

// Package check_test holds golock check to its word: real golocks pass it, on
// every kind of store, also when they are killed; what does not exclude fails;
// and nothing stays behind.
package check_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) {
	os.Exit(testkit.Main(m, redistest.Close, sqltest.Close))
}

// report is what golock check --json prints.
type report struct {
	Loops           int
	Counter         int
	LostUpdates     int  `json:"lost_updates"`
	MaxConcurrent   int  `json:"max_concurrent"`
	Limit           int  `json:"limit"`
	OrderInversions *int `json:"order_inversions"`
	HandOff         struct {
		P50, P99, Max float64
	} `json:"handoff_ms"`
	Killed   int
	Passed   bool
	Failed   int
	Problems []string
}

// command is golock check with a TMPDIR of its own and these arguments.
func command(t testing.TB, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	tmp = t.TempDir()
	cmd = exec.Command(testkit.Golock, append([]string{"check"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	return cmd, tmp
}

// check runs it with --json, demands that it leaves nothing in TMPDIR, and
// gives its report and exit code.
func check(t testing.TB, args ...string) (report, int) {
	t.Helper()
	cmd, tmp := command(t, append([]string{"--json"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("%v; stderr %q", err, &stderr)
	}
	isEmpty(t, tmp)
	var r report
	if code := cmd.ProcessState.ExitCode(); code > 1 {
		t.Fatalf("code %d, stderr %q", code, &stderr)
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v: %q; stderr %q", err, &stdout, &stderr)
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr %q", &stderr)
	}
	return r, cmd.ProcessState.ExitCode()
}

func isEmpty(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, f := range left {
		t.Errorf("%s is left in %s", f.Name(), dir)
	}
}

// passed demands that a report says so in all its parts.
func (r report) passed(t testing.TB, code, loops, limit int) {
	t.Helper()
	if code != 0 || !r.Passed || len(r.Problems) > 0 {
		t.Errorf("code %d, passed %v, problems %q", code, r.Passed, r.Problems)
	}
	if r.Loops != loops || r.Counter != loops || r.LostUpdates != 0 || r.Failed != 0 {
		t.Errorf("loops %d, counter %d, %d lost, %d failed, want %d", r.Loops, r.Counter, r.LostUpdates, r.Failed, loops)
	}
	if r.Limit != limit || r.MaxConcurrent < 1 || r.MaxConcurrent > limit {
		t.Errorf("at most %d of %d at the same time, want a limit of %d", r.MaxConcurrent, r.Limit, limit)
	}
	if h := r.HandOff; h.P50 <= 0 || h.P99 < h.P50 || h.Max < h.P99 {
		t.Errorf("hand-offs %+v", h)
	}
}

// stores are of all kinds; left demands that nothing is kept in them.
func stores(t *testing.T, test func(t *testing.T, url string, ordered bool, left func())) {
	t.Run("local", func(t *testing.T) {
		dir := t.TempDir()
		test(t, "local://"+dir, true, func() { isEmpty(t, dir) })
	})
	t.Run("mkdir", func(t *testing.T) {
		dir := t.TempDir()
		test(t, "mkdir://"+dir, true, func() { isEmpty(t, dir) })
	})
	t.Run("flock", func(t *testing.T) {
		test(t, "flock://"+t.TempDir()+"/file", false, func() {})
	})
	t.Run("redis", func(t *testing.T) {
		store := redistest.StoreURL(t)
		u, err := url.Parse(store)
		testkit.Must(t, err)
		test(t, store, true, func() {
			if left := redistest.Shared(t).Do("KEYS", "*"+u.Query().Get("prefix")+"*"); len(left.([]any)) > 0 {
				t.Errorf("keys are left: %v", left)
			}
		})
	})
	for name, start := range map[string]func(testing.TB) *sqltest.Server{"mariadb": sqltest.Maria, "postgres": sqltest.Postgres} {
		t.Run(name, func(t *testing.T) {
			server := start(t)
			db := server.NewDatabase(t)
			test(t, server.URL(db, "quarantine=0s"), true, func() {
				if rows := server.Exec(t, db, "SELECT COUNT(*) FROM golock WHERE lock_key<>''"); rows[0][0] != "0" {
					t.Errorf("%s rows are left", rows[0][0])
				}
			})
		})
	}
}

// On every kind of store it passes; whoever is killed, nobody else gets in, and
// the lock is as good as before.
func TestPassed(t *testing.T) {
	stores(t, func(t *testing.T, url string, ordered bool, left func()) {
		r, code := check(t, "--store", url, "--loops", "50", "--kill", "30")
		r.passed(t, code, 50, 1)
		if (r.OrderInversions != nil) != ordered {
			t.Errorf("order inversions %v, want them to be counted: %v", r.OrderInversions, ordered)
		}
		if r.Killed < 1 || r.Killed > 35 { // about 15; fewer where a busy machine kills late
			t.Errorf("%d of 50 were killed", r.Killed)
		}
		left()
	})
}

// Nobody who waits is overtaken.
func TestOrder(t *testing.T) {
	r, code := check(t, "--store", "local://"+t.TempDir(), "--loops", "60")
	r.passed(t, code, 60, 1)
	if r.OrderInversions == nil || *r.OrderInversions != 0 || r.Killed != 0 {
		t.Errorf("order inversions %v, %d killed", r.OrderInversions, r.Killed)
	}
}

func TestCluster(t *testing.T) {
	r, code := check(t, "--store", redistest.StartCluster(t).URL("quarantine=0s"), "--loops", "20", "--kill", "10")
	r.passed(t, code, 20, 1)
}

func TestSeveral(t *testing.T) {
	r, code := check(t, "--store", "local://"+t.TempDir(), "--loops", "80", "--max", "3", "--children", "8")
	r.passed(t, code, 80, 3)
	if r.MaxConcurrent != 3 {
		t.Errorf("%d at a time, want 3", r.MaxConcurrent)
	}
}

// Settings of the user's own runs are not for those of a check.
func TestSettings(t *testing.T) {
	for _, kv := range []string{"GOLOCK_WAIT=0", "GOLOCK_HOLD=5", "GOLOCK_MAX=9", "GOLOCK_NAME=mine", "GOLOCK_REPORT=/nonexistent/file", "GOLOCK_SLOT=8", "GOLOCK_FENCE=1"} {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	t.Setenv("GOLOCK_STORE", "local://"+t.TempDir())
	r, code := check(t, "--loops", "20")
	r.passed(t, code, 20, 1)
}

// The address of a store may have a password in it.
func TestSecret(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "hidden-word")
	t.Setenv("GOLOCK_STORE", strings.Replace(server.URL("quarantine=0s"), "redis://", "redis://:hidden-word@", 1))
	cmd, _ := command(t, "--loops", "30", "--kill", "10")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	testkit.Must(t, cmd.Start())
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	seen := 0
	for {
		select {
		case err := <-over:
			if err != nil || strings.Contains(out.String(), "hidden-word") || seen == 0 {
				t.Errorf("%v, %d command lines seen: %s", err, seen, &out)
			}
			return
		case <-time.After(time.Millisecond):
		}
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range lines {
			line, _ := os.ReadFile(file)
			if !bytes.Contains(line, []byte(testkit.Golock)) {
				continue
			}
			if seen++; bytes.Contains(line, []byte("hidden-word")) {
				t.Fatalf("the password is in a command line: %q", line)
			}
		}
	}
}

func TestOtherTools(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755))
		return file + " {}"
	}
	atomically := script("mkdir-lock", "until mkdir "+dir+"/d 2>/dev/null; do sleep 0.01; done\n\"$@\"\nrmdir "+dir+"/d\n")
	testThenCreate := script("test-then-create", "while [ -e "+dir+"/l ]; do sleep 0.001; done\nsleep 0.002\n: >"+dir+"/l\n\"$@\"\nrm -f "+dir+"/l\n")
	sloppy := script("not-waiting", "flock -n "+dir+"/n \"$@\"\n:\n")
	for _, c := range []struct {
		name, template string
		args           []string
		passes         bool
		problem        string
	}{
		{"flock", "flock " + dir + "/x {}", []string{"--loops", "40"}, true, ""},
		{"flock killed", "flock " + dir + "/x {}", []string{"--loops", "60", "--kill", "30"}, true, ""},
		{"mkdir", atomically, []string{"--loops", "40"}, true, ""},
		{"quotes", "sh -c 'exec flock \"$0\" \"$@\"' '" + dir + "/a \"b' {}", []string{"--loops", "20"}, true, ""},
		{"golock", testkit.Golock + " run --store local://" + dir + "/store --name n --max 2 -- {}", []string{"--loops", "40", "--max", "2"}, true, ""},
		{"flock that does not hand its lock on, killed", "flock -o " + dir + "/o {}", []string{"--loops", "100", "--kill", "50"}, false, "inside at the same time"},
		{"golock that does not, killed", testkit.Golock + " run --close --store local://" + dir + "/store --name c -- {}", []string{"--loops", "100", "--kill", "50"}, false, "inside at the same time"},
		{"env", "env {}", []string{"--loops", "60"}, false, "inside at the same time"},
		{"env with several", "env {}", []string{"--loops", "60", "--max", "3"}, false, "inside at the same time"},
		{"test, then create", testThenCreate, []string{"--loops", "100"}, false, "were inside at the same time"},
		{"wider than allowed", testkit.Golock + " run --store local://" + dir + "/store --name w --max 2 -- {}", []string{"--loops", "60"}, false, "2 were inside at the same time"},
		{"not waiting", sloppy, []string{"--loops", "40"}, false, "ended without having done their work"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, code := check(t, append([]string{"--with", c.template}, c.args...)...)
			problems := strings.Join(r.Problems, "; ")
			if r.Passed != c.passes || (code == 0) != c.passes || !strings.Contains(problems, c.problem) {
				t.Errorf("code %d, passed %v, problems %q", code, r.Passed, problems)
			}
			if r.OrderInversions != nil {
				t.Errorf("order inversions %d, of a tool that promises no order", *r.OrderInversions)
			}
			if r.Counter+r.LostUpdates+r.Failed != r.Loops && r.Killed == 0 {
				t.Errorf("%d children: counter %d, %d lost, %d failed", r.Loops, r.Counter, r.LostUpdates, r.Failed)
			}
		})
	}
}

// A check that is interrupted ends its runs and removes what it has made.
func TestInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for name, lock := range map[string][]string{
			"golock": {"--store", "local://" + t.TempDir()},
			"flock":  {"--with", "flock " + t.TempDir() + "/x {}"},
		} {
			t.Run(unix.SignalName(sig)+" "+name, func(t *testing.T) {
				cmd, tmp := command(t, append(lock, "--loops", "100000", "--kill", "10")...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				testkit.Must(t, cmd.Start())
				record := ""
				testkit.Eventually(t, "it begins", func() bool {
					files, _ := filepath.Glob(tmp + "/golock-check-*/record")
					for _, f := range files {
						if st, err := os.Stat(f); err == nil && st.Size() > 1000 {
							record = f
						}
					}
					return record != ""
				})
				testkit.Must(t, cmd.Process.Signal(sig))
				var exit *exec.ExitError
				if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(sig) {
					t.Errorf("%v: %s", err, &out)
				}
				isEmpty(t, tmp)
				files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, f := range files {
					if line, _ := os.ReadFile(f); bytes.Contains(line, []byte(filepath.Dir(record))) {
						t.Errorf("still running: %q", line)
					}
				}
				if out.Len() > 0 {
					t.Errorf("it said %q", &out)
				}
			})
		}
	}
}

// On a terminal there is a line that tells how far it is.
func TestTerminal(t *testing.T) {
	cmd, _ := command(t, "--store", "local://"+t.TempDir(), "--loops", "200")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 70})
	testkit.Must(t, err)
	defer tty.Close()
	var out bytes.Buffer
	_, _ = out.ReadFrom(tty) // ends with an error when the terminal is closed
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &out)
	}
	text := out.String()
	for _, want := range []string{"\r\x1b[Kgolock: ", " of 200 runs", "\r\x1b[Ktested ", "passed "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}
