//go:build integration

package answers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"golock/test/testkit"
)

// Every line that golock prints about itself is an object with time, level and msg where JSON is asked
// for, also for mistakes, and has the keys that docs/reference.md promises.
func TestLogLinesAreJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command string
		keys    string // of the last line
	}{
		{"run --name n --no-such-flag -- true", ""},
		{"run --name n", "name id"},
		{"run -- true", ""},
		{"run --name n --max x -- true", "name id"},
		{"run --name n --store no://such -- true", ""},
		{"no-such-command", ""},
		{"acquire --name n", "name id"},
		{"release wrong", ""},
		{"ls --no-such-flag", ""},
		{"ls unknown", ""},
		{"run --name job -n -- true", "name id holders waiters queue_full"},
		{"run --name job -n -v -E 0 -- true", "name id error holders waiters queue_full"},
		{"run --name free -v -- true", "name id held"},
	} {
		testkit.Each(t, programs(), func(t *testing.T, _, program string) {
			for kind, store := range stores(t) {
				s := testkit.OnStore(t, store)
				holder := s.Hold("job")
				args := append([]string{program}, strings.Fields(c.command)...)
				all := []testkit.Result{s.Exec(args...).Setenv("GOLOCK_LOG_FORMAT=json").Run()}
				if strings.HasPrefix(c.command, "run") {
					args = append([]string{program, "run", "--log-format", "json"}, args[2:]...)
					all = append(all, s.Exec(args...).Run())
				}
				holder.Finish()
				for _, r := range all {
					checkLines(t, kind+": "+c.command, r.Stderr, strings.Fields(c.keys))
				}
			}
		})
	}
}

// checkLines demands lines of JSON, the last one with these keys.
func checkLines(t *testing.T, what, text string, keys []string) {
	t.Helper()
	var last map[string]any
	for line := range strings.Lines(text) {
		last = nil
		err := json.Unmarshal([]byte(line), &last)
		if err != nil {
			t.Errorf("%s: %v: %q", what, err, line)
			return
		}
		for _, key := range []string{"time", "level", "msg"} {
			if last[key] == nil {
				t.Errorf("%s: no %s in %q", what, key, line)
			}
		}
	}
	if last == nil {
		t.Errorf("%s: no line", what)
	}
	for _, key := range keys {
		if _, found := last[key]; !found {
			t.Errorf("%s: no %s in %q", what, key, text)
		}
	}
}

// A store that cannot be asked gives nothing on standard output: an empty array would say "free".
func TestListOfUnreachableStoreIsNotEmpty(t *testing.T) {
	t.Parallel()
	testkit.Each(t, programs(), func(t *testing.T, _, program string) {
		s := testkit.New(t, "")
		for _, store := range []string{"redis://127.0.0.1:1", "etcd://127.0.0.1:1", "local:///proc/version", "mkdir:///no/such/directory"} {
			r := s.Exec(program, "ls", "--json", "--store", store).Run()
			if r.Code != 69 || r.Stdout != "" {
				t.Errorf("%s: %v", store, r)
			}
		}
	})
}
