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
func secretServer(t *testing.T, password string) *redistest.Server {
	t.Helper()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "job", "on", ">"+password, "~*", "&*", "+@all")
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
	shown   string                           // as golock shows it
	entries func(t *testing.T) (text string) // all that is stored
}

func redisVault(t *testing.T) vault {
	t.Helper()
	server := secretServer(t, secret)
	return vault{
		url: "redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s", shown: "redis://job@" + server.Addr(),
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
	at := "@" + server.Addr() + "/" + db
	return vault{
		url: server.Kind + "://job_" + db + ":" + secret + at + "?quarantine=0s", shown: server.Kind + "://job_" + db + at,
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
	if !strings.Contains(text, "GOLOCK_LOCK_STORE="+v.shown) {
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

// failure is a store that cannot be used.
type failure struct{ url, says string }

// Whatever goes wrong with a server, its password is not told. (Nor in what is said of a
// wrong URL: TestBadURL.)
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	all := failures(t)
	var calls []*testkit.Command
	for i, c := range all {
		patience := "20" // a refusal comes in time, an outage is waited for
		if c.says == "" {
			patience = "0.2"
		}
		// What one leaves on a server must not be in the way of the next.
		calls = append(calls, by(s, ways[i%len(ways)], c.url, "run", "-v", "--log-format", "json", "-w", patience,
			"--name", fmt.Sprint("n", i), "--", "echo", "started"))
	}
	for i, r := range testkit.RunAll(calls) {
		shows(t, all[i].url, r.Stdout+r.Stderr)
		if r.Code != 69 || !strings.Contains(r.Stderr, all[i].says) || r.Stdout != "" {
			t.Errorf("%s: %v, want 69 and something about %q", all[i].url, r, all[i].says)
		}
	}
}

func failures(t *testing.T) []failure {
	t.Helper()
	server := secretServer(t, secret)
	dead := redistest.FreePort(t)
	cases := []failure{
		{fmt.Sprintf("redis://job:%s@127.0.0.1:%d", secret, dead), ""},
		{fmt.Sprintf("redis+sentinel://job:%s@127.0.0.1:%d/m?sentinel-user=u&sentinel-password=%s", secret, dead, secret), ""},
		{fmt.Sprintf("redis+cluster://job:%s@127.0.0.1:%d", secret, dead), ""},
		{"redis+unix://job:" + secret + "@/nowhere/socket", ""},
		{"redis://job:" + secret + "x@" + server.Addr(), "WRONGPASS"},
		{"redis://nobody:" + secret + "@" + server.Addr(), "WRONGPASS"},
		{"redis://job:" + secret + "@" + server.Addr() + "/12345", "DB index"},
		{"rediss://job:" + secret + "@" + server.Addr(), ""},
		{"redis+cluster://job:" + secret + "@" + server.Addr(), ""},
		{"redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s&min-replicas=1", ""},
	}
	for _, server := range []*sqltest.Server{sqltest.Maria(t), sqltest.Postgres(t)} {
		db, to := server.NewDatabase(t), server.Kind+"://job:"+secret
		there := to + "@" + server.Addr() + "/" + db
		cases = append(cases, []failure{
			{fmt.Sprintf("%s@127.0.0.1:%d/db", to, dead), ""},
			{to + "@localhost/db?socket=/nowhere/socket", ""},
			{there, "user and password"},
			{there + "?tls=on", "TLS"},
			{there + "?tls=on&ca=/nowhere", "ca"},
		}...)
	}
	return cases
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
