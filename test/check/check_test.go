//go:build integration

// Package check_test holds golock check to its word: real golocks pass it, on
// every kind of store, also when they are killed; what does not exclude fails;
// and nothing stays behind.
package check_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, 3)) }

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

// command is golock check with these arguments, and the working directory for its files.
func command(s *testkit.Sandbox, args ...string) *testkit.Command {
	return s.Golock(append([]string{"check"}, args...)...).Setenv("TMPDIR=" + s.Dir)
}

// check runs it with --json, demands that it leaves no files, and gives its report and exit code.
func check(s *testkit.Sandbox, args ...string) (r report, code int) {
	s.T.Helper()
	end := command(s, append([]string{"--json"}, args...)...).Run()
	isEmpty(s.T, s.Dir)
	if err := json.Unmarshal([]byte(end.Stdout), &r); err != nil || end.Code > 1 || end.Stderr != "" {
		s.T.Fatalf("%v, %v", end, err)
	}
	return r, end.Code
}

func isEmpty(t testing.TB, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	testkit.Must(t, err)
	for _, f := range left {
		t.Errorf("%s is left in %s", f.Name(), dir)
	}
}

// passes checks the sandbox's store and demands a report that says so in all its parts.
func passes(s *testkit.Sandbox, loops, limit int, args ...string) report {
	t := s.T
	t.Helper()
	r, code := check(s, append(args, "--store", s.Store, "--loops", strconv.Itoa(loops))...)
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
	return r
}

// It passes on every kind of store; whoever is killed, nobody else gets in, and nothing is left.
func TestPassed(t *testing.T) {
	stores := map[string]func(t *testing.T) (store string, left func() any){
		"local": func(t *testing.T) (string, func() any) { return directory(t, "local://") },
		"mkdir": func(t *testing.T) (string, func() any) { return directory(t, "mkdir://") },
		"flock": func(t *testing.T) (string, func() any) { return "flock://" + t.TempDir() + "/file", nil },
		"redis": func(t *testing.T) (string, func() any) {
			store := redistest.StoreURL(t)
			u, err := url.Parse(store)
			testkit.Must(t, err)
			return store, func() any { return redistest.Shared(t).Do("KEYS", "*"+u.Query().Get("prefix")+"*") }
		},
		"mariadb":  func(t *testing.T) (string, func() any) { return database(t, sqltest.Maria(t)) },
		"postgres": func(t *testing.T) (string, func() any) { return database(t, sqltest.Postgres(t)) },
	}
	if !testkit.Deep() { // one store of each kind: with a queue or not, on files, on servers
		delete(stores, "mkdir")
		delete(stores, "mariadb")
	}
	testkit.Each(t, stores, func(t *testing.T, _ string, prepare func(t *testing.T) (store string, left func() any)) {
		store, left := prepare(t)
		r := passes(testkit.New(t, store), 25, 1, "--kill", "40")
		if (r.OrderInversions != nil) != (left != nil) {
			t.Errorf("order inversions %v", r.OrderInversions)
		}
		if r.Killed < 1 || r.Killed > 20 { // about 10; fewer where a busy machine kills late
			t.Errorf("%d of 25 were killed", r.Killed)
		}
		if left != nil && fmt.Sprint(left()) != "[]" {
			t.Errorf("left in the store: %v", left())
		}
	})
}

// directory and database say what is left in a store.
func directory(t *testing.T, scheme string) (store string, left func() any) {
	dir := t.TempDir()
	return scheme + dir, func() any {
		files, err := os.ReadDir(dir)
		testkit.Must(t, err)
		return files
	}
}

func database(t *testing.T, server *sqltest.Server) (store string, left func() any) {
	db := server.NewDatabase(t)
	return server.URL(db, "quarantine=0s"), func() any {
		return server.Exec(t, db, "SELECT * FROM golock WHERE lock_key<>''")
	}
}

// Several at a time, and nobody who waits is overtaken. Settings of the user's own runs are not for
// those of a check.
func TestSeveral(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	s.Env = append(s.Env, "GOLOCK_WAIT=0", "GOLOCK_HOLD=5", "GOLOCK_MAX=9", "GOLOCK_NAME=mine",
		"GOLOCK_REPORT=/nonexistent/file", "GOLOCK_SLOT=8", "GOLOCK_FENCE=1")
	r := passes(s, 30, 3, "--max", "3", "--children", "8")
	if r.MaxConcurrent != 3 || r.OrderInversions == nil || *r.OrderInversions != 0 || r.Killed != 0 {
		t.Errorf("%d at a time, want 3; order inversions %v, %d killed", r.MaxConcurrent, r.OrderInversions, r.Killed)
	}
}

func TestOtherTools(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		name, template string
		args           []string
		passes         bool
		problem        string
	}{
		{"flock killed", "flock " + dir + "/x {}", []string{"--loops", "20", "--kill", "30"}, true, ""},
		{"quotes", "sh -c 'exec flock \"$0\" \"$@\"' '" + dir + "/a \"b' {}", []string{"--loops", "10"}, true, ""},
		{"golock", testkit.Golock + " run --store local://" + dir + "/store --name n --max 2 -- {}", []string{"--loops", "20", "--max", "2"}, true, ""},
		{"flock that does not hand its lock on, killed", "flock -o " + dir + "/o {}", []string{"--loops", "60", "--kill", "50"}, false, "inside at the same time"},
		{"golock that does not, killed", testkit.Golock + " run --close --store local://" + dir + "/store --name c -- {}", []string{"--loops", "60", "--kill", "50"}, false, "inside at the same time"},
		{"env with several", "env {}", []string{"--loops", "20", "--max", "3"}, false, "inside at the same time"},
		{"wider than allowed", testkit.Golock + " run --store local://" + dir + "/store --name w --max 2 -- {}", []string{"--loops", "20"}, false, "2 were inside at the same time"},
		{"not waiting", "sh -c 'flock -n \"$0\" \"$@\"; :' " + dir + "/n {}", []string{"--loops", "20"}, false, "ended without having done their work"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, code := check(testkit.New(t, ""), append([]string{"--with", c.template}, c.args...)...)
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
	for sig, lock := range map[syscall.Signal][]string{
		syscall.SIGINT:  {"--store", "local://" + t.TempDir()},
		syscall.SIGTERM: {"--with", "flock " + t.TempDir() + "/x {}"},
	} {
		s := testkit.New(t, "")
		p := command(s, append(lock, "--loops", "100000", "--kill", "10")...).Begin()
		s.Eventually("runs end", func() bool {
			files, _ := filepath.Glob(s.Path("golock-check-*/record"))
			return slices.ContainsFunc(files, func(f string) bool {
				st, err := os.Stat(f)
				return err == nil && st.Size() > 1000
			})
		})
		p.Signal(sig)
		if r := p.DiesOf(sig); r.Stdout+r.Stderr != "" {
			t.Errorf("it says something: %v", r)
		}
		isEmpty(t, s.Dir)
		s.NoneNow()
	}
}

// On a terminal there is a line that tells how far it is.
func TestTerminal(t *testing.T) {
	s := testkit.New(t, "")
	p := command(s, "--store", s.Store, "--loops", "30").OnTerminal(70, 30)
	for _, text := range []string{`\r\x1b\[Kgolock: `, " of 30 runs", `\r\x1b\[Ktested `, "passed "} {
		p.Shows(text)
	}
	p.Expects(0)
}
