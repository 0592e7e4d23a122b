package matrix_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golock/locks/redis/redistest"
	"golock/locks/sql/sqltest"
)

// This file pins that a store's password stays where the user has put it: no
// line of golock's, no arguments of a process that golock starts, no
// environment, no list and no entry in the store shows it.

const secret = "pass-S3CRET"

// secretServer is a Redis server that wants the password of a user.
func secretServer(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "job", "on", ">"+secret, "~*", "&*", "+@all")
	return s
}

// golockWith runs golock to its end, with a setting of its own, and gives all
// that it wrote and its exit code.
func golockWith(t *testing.T, variable string, args ...string) (text string, code int) {
	t.Helper()
	cmd := exec.Command(golock, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOLOCK_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if variable != "" {
		cmd.Env = append(cmd.Env, variable)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// ways are the three to name a store: what to put into the environment, and
// flags.
func ways(t *testing.T, url string) map[string][2][]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[defaults]\nstore = %q\n", url), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string][2][]string{
		"variable": {{"GOLOCK_STORE=" + url}, nil},
		"file":     {nil, {"--config", file}},
		"flag":     {nil, {"--store", url}},
	}
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
	server := secretServer(t)
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
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			staysHidden(t, v)
		})
	}
}

func staysHidden(t *testing.T, v vault) {
	t.Helper()
	for name, way := range ways(t, v.url) {
		for _, format := range []string{"text", "json"} {
			variable := strings.Join(way[0], "")
			run := func(command string, flags ...string) (string, int) {
				return golockWith(t, variable, append(append([]string{command}, way[1]...), flags...)...)
			}
			text, code := run("run", "-v", "--log-format", format, "--name", name+format, "--", "sh", "-c", spy)
			if code != 0 || !strings.Contains(text, "guard golock-guard") || !strings.Contains(text, "child golock-guard") {
				t.Fatalf("%s: exit code %d: %s", name, code, text)
			}
			if !strings.Contains(text, "GOLOCK_LOCK_STORE="+v.shown) {
				t.Errorf("%s: no GOLOCK_LOCK_STORE without the password: %s", name, text)
			}
			if variable != "" { // the user's own, which is handed on
				text = strings.ReplaceAll(text, "env "+variable+"\n", "")
			}
			shows(t, name, text)

			// One who holds, one who waits, one who is turned away, and a list.
			inner := exec.Command(golock, append(append([]string{"run"}, way[1]...), "--name", name, "--", "cat")...)
			inner.Env = append(os.Environ(), way[0]...)
			hold, err := inner.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := inner.Start(); err != nil {
				t.Fatal(err)
			}
			lists := func() bool {
				text, _ = run("ls", name, "--json")
				return strings.Contains(text, `"holding"`)
			}
			await(t, "the holder is listed", lists)
			shows(t, name+": ls --json", text)
			text, _ = run("ls")
			shows(t, name+": ls", text)
			text, code = run("run", "-v", "--log-format", format, "-n", "--name", name, "--", "true")
			shows(t, name+": -n", text)
			if code != 75 {
				t.Errorf("%s: -n at a taken slot: %d", name, code)
			}
			text, _ = run("run", "-v", "--log-format", format, "-w", "0.1", "--name", name, "--", "true")
			shows(t, name+": -w", text)
			shows(t, name+": entries", v.entries(t))
			hold.Close()
			if err := inner.Wait(); err != nil {
				t.Errorf("%s: the holder: %v", name, err)
			}
		}
	}
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
	server := secretServer(t)
	dead := redistest.FreePort(t)
	names := 0
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
	for _, c := range cases {
		for name, way := range ways(t, c.url) {
			patience := "0.2" // a refusal is waited for, an outage is not
			if c.says != "" {
				patience = "20"
			}
			forms := [][]string{{"run", "-n"}, {"run", "-v", "--log-format", "json", "-w", patience}, {"ls"}}
			switch { // what is tried again for a while is tried once in each way
			case c.code == 69 && name == "file":
				forms = forms[1:2]
			case c.code == 69:
				forms = [][]string{{"run", "-w", patience}}
			}
			for _, flags := range forms {
				args := append(append([]string{flags[0]}, way[1]...), flags[1:]...)
				want := c.code
				if want == 64 && name != "flag" {
					want = 78
				}
				if flags[0] == "run" {
					names++ // what one leaves on a server must not be in the way of the next
					args = append(args, "--name", fmt.Sprint("n", names), "--", "echo", "started")
				}
				text, code := golockWith(t, strings.Join(way[0], ""), args...)
				what := fmt.Sprintf("%s by %s, %v", c.url, name, flags)
				shows(t, what, text)
				if code != want || !strings.Contains(text, c.says) || strings.Contains(text, "started") {
					t.Errorf("%s: exit code %d, want %d and something about %q: %s", what, code, want, c.says, text)
				}
			}
		}
	}
}

// shows fails the test if a text has the secret in it.
func shows(t *testing.T, what, text string) {
	t.Helper()
	if strings.Contains(text, "S3CRET") {
		t.Errorf("%s: it shows the password: %s", what, text)
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
