//go:build integration

package hostile_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
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

// vault is a store with a password.
type vault struct {
	url     string
	entries func(t *testing.T) (text string) // all that is stored
}

func redisVault(t *testing.T) vault {
	t.Helper()
	server := secretServer(t)
	return vault{
		url:     "redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s",
		entries: func(*testing.T) string { return everything(server) },
	}
}

// sqlVault is a database with a user of its own.
func sqlVault(t *testing.T, server *sqltest.Server) vault {
	t.Helper()
	db := server.NewDatabase(t)
	make := fmt.Sprintf("CREATE USER job_%[1]s@'127.0.0.1' IDENTIFIED BY '%[2]s'; GRANT ALL ON %[1]s.* TO job_%[1]s@'127.0.0.1'", db, secret)
	if server.Kind == "postgres" {
		make = fmt.Sprintf("CREATE ROLE job_%[1]s LOGIN PASSWORD '%[2]s'; GRANT ALL ON SCHEMA public TO job_%[1]s", db, secret)
	}
	server.Exec(t, db, make)
	return vault{
		url: server.Kind + "://job_" + db + ":" + secret + "@" + server.Addr() + "/" + db + "?quarantine=0s",
		entries: func(t *testing.T) string {
			t.Helper()
			return fmt.Sprint(server.Exec(t, db, "SELECT * FROM golock"))
		},
	}
}

func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	for what, v := range map[string]vault{"redis": redisVault(t), "mariadb": sqlVault(t, sqltest.Maria(t)), "postgres": sqlVault(t, sqltest.Postgres(t))} {
		for i, way := range ways {
			t.Run(what+"/"+way, func(t *testing.T) {
				t.Parallel()
				staysHidden(t, v, way, []string{"text", "json"}[i%2])
			})
		}
	}
}

func staysHidden(t *testing.T, v vault, way, format string) {
	t.Helper()
	s := testkit.New(t, "")
	run := func(code int, subcommand string, args ...string) string {
		t.Helper()
		r := by(s, way, v.url, subcommand, args...).Run()
		says(t, subcommand, r, code)
		return r.Stdout + r.Stderr
	}
	text := run(0, "run", "-v", "--log-format", format, "--name", way, "--", "sh", "-c", spy)
	if !strings.Contains(text, "guard golock-watchdog") || !strings.Contains(text, "child golock-watchdog") {
		t.Fatalf("the spy saw %s", text)
	}
	shown, _, _ := strings.Cut(strings.Replace(v.url, ":"+secret, "", 1), "?")
	if !strings.Contains(text, "GOLOCK_LOCK_STORE="+shown) {
		t.Errorf("no GOLOCK_LOCK_STORE without the password: %s", text)
	}
	// The user's own variable is handed on.
	shows(t, "run", strings.ReplaceAll(text, "env GOLOCK_STORE="+v.url+"\n", ""))

	// One who holds, one who waits, one who is turned away, and a list.
	holder := by(s, way, v.url, "run", "--name", way, "--", "sh", "-c", "echo holding; read end").Start()
	holder.Expect("holding")
	shows(t, "ls --json", run(0, "ls", way, "--json"))
	shows(t, "ls", run(0, "ls"))
	for _, wait := range []string{"-n", "-w1"} {
		shows(t, wait, run(75, "run", "-v", "--log-format", format, wait, "--name", way, "--", "true"))
	}
	shows(t, "entries", v.entries(t))
	holder.Finish()
}

// Whatever a server lacks, its password is not told. (Nor in what is said of a wrong login or URL:
// TestRefusedLogin, TestBadConnection of the engines, TestBadURLs.)
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	s, server := testkit.New(t, ""), secretServer(t)
	const login = "job:" + secret + "@"
	dead := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	urls := []string{
		"redis://" + login + dead,
		"redis+sentinel://" + login + dead + "/m?sentinel-user=u&sentinel-password=" + secret,
		"redis+cluster://" + login + dead,
		"redis+unix://" + login + "/nowhere/socket",
		"rediss://" + login + server.Addr(),
		"redis+cluster://" + login + server.Addr(),
		"redis://" + login + server.Addr() + "?quarantine=0s&min-replicas=1",
		"mariadb://" + login + dead + "/db",
		"mariadb://" + login + "localhost/db?socket=/nowhere/socket",
		"postgres://" + login + dead + "/db",
		"postgres://" + login + "localhost/db?socket=/nowhere/socket",
	}
	var calls []*testkit.Command
	for i, url := range urls {
		// What one leaves on a server must not be in the way of the next.
		calls = append(calls, by(s, ways[i%len(ways)], url, "run", "-v", "--log-format", "json", "-w", "0.2",
			"--name", fmt.Sprint("n", i), "--", "echo", "started"))
	}
	for i, r := range testkit.RunAll(calls) {
		shows(t, urls[i], r.Stdout+r.Stderr)
		if r.Code != 69 || r.Stdout != "" {
			t.Errorf("%s: %v, want 69", urls[i], r)
		}
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
