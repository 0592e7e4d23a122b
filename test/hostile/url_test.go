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

// This file pins that a store's password stays where the user has put it: no
// line of golock's, no arguments of a process that golock starts, no
// environment, no list and no entry in the store shows it.

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

// mistake is a store that cannot be used.
type mistake struct {
	url  string
	code int // with a flag, from elsewhere 78 if that is 64
	says string
}

// Whatever goes wrong with a store, its password is not told.
func TestSecretsInErrors(t *testing.T) {
	t.Parallel()
	s := testkit.New(t, "")
	type attempt struct {
		what string
		want mistake
	}
	var attempts []attempt
	var calls []*testkit.Command
	for i, c := range mistakes(t) {
		for j, way := range ways {
			if c.code == 69 && (i+j)%len(ways) != 0 {
				continue // what is tried for a while is tried in one way
			}
			want := c
			if way != "flag" && c.code == 64 {
				want.code = 78
			}
			// With every third mistake the same. A refusal comes in time, an
			// outage is waited for.
			form, args, patience := "run", []string{"-n"}, "20"
			if c.says == "" {
				patience = "0.2"
			}
			switch {
			case c.code == 69 || (i+j)%3 == 0:
				args = []string{"-v", "--log-format", "json", "-w", patience}
			case (i+j)%3 == 1:
				form, args = "ls", nil
			}
			if form == "run" { // what one leaves on a server must not be in the way of the next
				args = append(args, "--name", fmt.Sprint("n", len(calls)), "--", "echo", "started")
			}
			attempts = append(attempts, attempt{fmt.Sprintf("%s by %s, %s %q", c.url, way, form, args), want})
			calls = append(calls, by(s, way, c.url, form, args...))
		}
	}
	for i, r := range testkit.RunAll(calls) {
		a, text := attempts[i], r.Stdout+r.Stderr
		shows(t, a.what, text)
		if r.Code != a.want.code || !strings.Contains(text, a.want.says) || strings.Contains(r.Stdout, "started") {
			t.Errorf("%s: %v, want %d and something about %q", a.what, r, a.want.code, a.want.says)
		}
	}
}

func mistakes(t *testing.T) []mistake {
	t.Helper()
	server := secretServer(t, secret)
	dead := redistest.FreePort(t)
	cases := []mistake{
		{fmt.Sprintf("redis://job:%s@127.0.0.1:%d", secret, dead), 69, ""},
		{fmt.Sprintf("redis+sentinel://job:%s@127.0.0.1:%d/m?sentinel-user=u&sentinel-password=%s", secret, dead, secret), 69, ""},
		{fmt.Sprintf("redis+cluster://job:%s@127.0.0.1:%d", secret, dead), 69, ""},
		{"redis+unix://job:" + secret + "@/nowhere/socket", 69, ""},
		{"redis://job:" + secret + "x@" + server.Addr(), 69, "WRONGPASS"},
		{"redis://nobody:" + secret + "@" + server.Addr(), 69, "WRONGPASS"},
		{"redis://job:" + secret + "@" + server.Addr() + "/12345", 69, "DB index"},
		{"rediss://job:" + secret + "@" + server.Addr(), 69, ""},
		{"redis+cluster://job:" + secret + "@" + server.Addr(), 69, ""},
		{"redis://job:" + secret + "@" + server.Addr() + "?quarantine=0s&min-replicas=1", 69, ""},
		{"redis://job:" + secret + "@h:port", 64, "port"},
		{"redis://job:" + secret + "@h:70000", 64, "port"},
		{"redis://job:" + secret + "@", 64, "host"},
		{"redis://job:" + secret, 64, "port"},
		{"redis://job:" + secret + "@h/db", 64, "db"},
		{"redis://job:" + secret + "@h?nonsense=1", 64, "nonsense"},
		{"redis://job:" + secret + "%zz@h", 64, "password"},
		{"redis://job:" + secret + "/1@h", 64, "%2F"},
		{"redis://job:1?" + secret + "@h", 64, "%3F"},
		{"redis://job:1/" + secret + "@h", 64, "%2F"},
		{"redis://job:" + secret + "#1@h", 64, "%23"},
		{"redis+unix://job:" + secret + "/1@/sock", 64, "%2F"},
		{"redis+sentinel://job:" + secret + "@h?sentinel-password=" + secret, 64, "master"},
		{"redis:/job:" + secret + "@h", 64, "two slashes"},
		{"reddis://job:" + secret + "@h", 64, "scheme"},
		{secret + "@h:6379", 64, "scheme"},
		{secret, 64, "scheme"},
		{"local://job:" + secret + "@h/dir", 64, "host"},
		{"etcd://job:" + secret + "@h/db", 64, "scheme"},
	}
	for _, server := range []*sqltest.Server{sqltest.Maria(t), sqltest.Postgres(t)} {
		db, to := server.NewDatabase(t), server.Kind+"://job:"+secret
		there := to + "@" + server.Addr() + "/" + db
		cases = append(cases, []mistake{
			{fmt.Sprintf("%s@127.0.0.1:%d/db", to, dead), 69, ""},
			{to + "@localhost/db?socket=/nowhere/socket", 69, ""},
			{there, 69, "user and password"},
			{there + "?tls=on", 69, "TLS"},
			{there + "?tls=on&ca=/nowhere", 69, "ca"},
			{to + "@h:port/db", 64, "port"},
			{to + "@h", 64, "database"},
			{to + "@/db", 64, "host"},
			{to + "@h/db?nonsense=1", 64, "nonsense"},
			{to + "%zz@h/db", 64, "password"},
			{to + "/1@h/db", 64, "%2F"},
			{to + "#1@h/db", 64, "%23"},
			{server.Kind + "://job:1?" + secret + "@h/db", 64, "%3F"},
			{server.Kind + ":/job:" + secret + "@h/db", 64, "two slashes"},
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
