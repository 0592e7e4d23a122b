//go:build integration

package answers_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"golock/test/testkit"
)

// Every line that golock prints about itself is an object with time, level and msg where JSON is asked
// for, also for mistakes, and has the keys that docs/reference.md promises. Each program runs each command
// on one of the stores, in the deep run on all.
func TestLogLinesAreJSON(t *testing.T) {
	t.Parallel()
	commands := []struct {
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
	}
	testkit.Each(t, programs(), func(t *testing.T, _, program string) {
		all := stores(t)
		for j, kind := range slices.Sorted(maps.Keys(all)) {
			s := testkit.OnStore(t, all[kind])
			holder := s.Hold("job")
			for i, c := range commands {
				if !testkit.Covers(i, j, len(all)) {
					continue
				}
				args := append([]string{program}, strings.Fields(c.command)...)
				ends := []testkit.Result{s.Exec(args...).Setenv("GOLOCK_LOG_FORMAT=json").Run()}
				if strings.HasPrefix(c.command, "run") {
					args = append([]string{program, "run", "--log-format", "json"}, args[2:]...)
					ends = append(ends, s.Exec(args...).Run())
				}
				for _, r := range ends {
					checkLines(t, kind+": "+c.command, r.Stderr, strings.Fields(c.keys))
				}
			}
			holder.Finish()
		}
	})
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
