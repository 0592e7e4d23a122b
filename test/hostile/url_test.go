//go:build integration

package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/test/testkit"
)

// A store's password stays where the user has put it: no message, no arguments or environment of a
// process that golock starts, no list and no entry in the store shows it.

// secretServer is a Redis server that wants the password of a user.
func secretServer(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "job", "on", ">"+secret, "~*", "&*", "+@all")
	return s
}

// A way to name a store.
var ways = []string{"variable", "file", "flag"}

// by prepares a golock that is told its store in a way.
func by(s *testkit.Sandbox, way, url, subcommand string, args ...string) *testkit.Command {
	s.T.Helper()
	switch way {
	case "file":
		file := testkit.Place(s.T, 0o755) + "/config.toml"
		testkit.Must(s.T, os.WriteFile(file, fmt.Appendf(nil, "[defaults]\nstore = %q\n", url), 0o600))
		args = append([]string{"--config", file}, args...)
	case "flag":
		args = append([]string{"--store", url}, args...)
	}
	c := s.Golock(append([]string{subcommand}, args...)...)
	if way == "variable" {
		c.Setenv("GOLOCK_STORE=" + url)
	}
	return c
}

// The command of a run tells what it sees: its environment, the arguments of
// its ancestors up to golock, and of all that have the same parent.
const spy = `env | sed 's/^/env /'
echo "guard $(tr '\0' ' ' </proc/$PPID/cmdline)"
golock=$(sed 's/.*) . //;s/ .*//' /proc/$PPID/stat)
for task in /proc/$golock/task/*; do for child in $(cat $task/children); do
	echo "child $(tr '\0' ' ' </proc/$child/cmdline)"; done; done`

// (What a store's URL shows, of which all this is made: TestURLs. What is said of a wrong login or
// server: TestFinalErrors, TestBadConnection, and whatever it is TestPasswordInTheWrongPlace.)
func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	server := secretServer(t)
	for i, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			format := []string{"text", "json"}[i%2]
			s := testkit.New(t, "")
			url := "redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s"
			run := func(code int, subcommand string, args ...string) string {
				t.Helper()
				r := by(s, way, url, subcommand, args...).Run()
				says(t, subcommand, r, code)
				return r.Stdout + r.Stderr
			}
			text := run(0, "run", "-v", "--log-format", format, "--name", way, "--", "sh", "-c", spy)
			if !strings.Contains(text, "guard golock-watchdog") || !strings.Contains(text, "child golock-watchdog") {
				t.Fatalf("the spy saw %s", text)
			}
			shown, _, _ := strings.Cut(strings.Replace(url, ":"+secret, "", 1), "?")
			if !strings.Contains(text, "GOLOCK_LOCK_STORE="+shown) {
				t.Errorf("no GOLOCK_LOCK_STORE without the password: %s", text)
			}
			// The user's own variable is handed on.
			shows(t, "run", strings.ReplaceAll(text, "env GOLOCK_STORE="+url+"\n", ""))

			// One who holds, one who waits, one who is turned away, and a list.
			holder := by(s, way, url, "run", "--name", way, "--", "sh", "-c", "echo holding; read end").Start()
			holder.Expect("holding")
			shows(t, "ls --json", run(0, "ls", way, "--json"))
			shows(t, "ls", run(0, "ls"))
			for _, wait := range []string{"-n", "-w1"} {
				shows(t, wait, run(75, "run", "-v", "--log-format", format, wait, "--name", way, "--", "true"))
			}
			shows(t, "entries", everything(server))
			holder.Finish()
		})
	}
}

// everything is all that a server has stored.
func everything(s *redistest.Server) string {
	var b strings.Builder
	for _, key := range s.Do("KEYS", "*").([]any) {
		fmt.Fprintln(&b, key)
		for _, read := range [][]any{{"HGETALL", key}, {"ZRANGE", key, 0, -1}} {
			if found, err := s.Try(read...); err == nil {
				fmt.Fprintln(&b, found)
			}
		}
	}
	return b.String()
}
