//go:build integration

package examples_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Workers share a table of jobs: each job is done once, by somebody, and a
// worker that is too late changes nothing.
func TestJobs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server func(testing.TB) *sqltest.Server
		client string
	}{{sqltest.Maria, "mariadb"}, {sqltest.Postgres, "psql"}} {
		t.Run(tt.client, func(t *testing.T) {
			t.Parallel()
			testkit.Need(t, tt.client)
			server := tt.server(t)
			db := server.NewDatabase(t)
			dir, home := copyExample(t, "jobs"), t.TempDir()
			write(t, filepath.Join(home, ".my.cnf"), 0o600, fmt.Sprintf("[client]\nuser=%s\npassword=\"%s\"\nsocket=%s\n[mysql]\ndatabase=%s\n", server.User, sqltest.Password, server.Socket, db))
			write(t, filepath.Join(dir, "work"), 0o755, `#!/bin/sh
echo "$1" >>log
case $1 in slow*) until [ -e "go.$PPID" ] || [ -e go.all ]; do sleep 0.01; done; echo "$PPID" ;; *) printf %s "$1" | wc -c | tr -d ' ' ;; esac
`)
			start := func(argv ...string) *command {
				t.Helper()
				c := newCommand(t, "", dir, argv...)
				c.Env = append(c.Env, "HOME="+home, "GOLOCK_STORE="+server.URL(db), "PGHOST="+server.Socket,
					fmt.Sprint("PGPORT=", server.Port), "PGUSER="+server.User, "PGDATABASE="+db)
				return c.start(t)
			}
			finish := func(c *command) string {
				t.Helper()
				if code := c.code(t); code != 0 || c.said() != "" {
					t.Fatalf("%q: exit code %d, stderr: %s", c.Args, code, &c.err)
				}
				return c.out.String()
			}
			done := func() []string { return lines(read(t, filepath.Join(dir, "log"))) }

			finish(start("sh", "-c", "./db <schema.sql"))
			const jobs = 12
			insert := "INSERT INTO jobs (id, input) VALUES (0, 'job0')"
			var want []string
			for i := range jobs {
				want = append(want, fmt.Sprint("job", i))
				if i > 0 {
					insert += fmt.Sprintf(", (%d, 'job%d')", i, i)
				}
			}
			finish(start("sh", "-c", "echo \"$1;\" | ./db", "sh", insert))
			var workers []*command
			for range 3 {
				workers = append(workers, start("./worker"))
			}
			for _, w := range workers {
				finish(w)
			}
			got := done()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("done were %q", got)
			}
			report := lines(finish(start("./report")))
			by := 0
			for _, line := range report[1:] {
				var n int
				if _, err := fmt.Sscan(line[strings.LastIndexByte(line, '\t'):], &n); err != nil {
					t.Errorf("the report says %q", line)
				}
				by += n
			}
			if report[0] != fmt.Sprintf("done\t%d", jobs) || by != jobs {
				t.Errorf("the report is %q", report)
			}
			results := "SELECT COUNT(DISTINCT fence), SUM(LENGTH(input) = result) FROM jobs;"
			if tt.client == "psql" {
				results = "SELECT COUNT(DISTINCT fence), COUNT(*) FROM jobs WHERE LENGTH(input)::text = result;"
			}
			if text := finish(start("sh", "-c", "echo \"$1\" | ./db", "sh", results)); text != fmt.Sprintf("%d\t%d\n", jobs, jobs) {
				t.Errorf("fences and results: %q", text)
			}

			// A job is taken over from a worker that is slow: it comes too late.
			finish(start("sh", "-c", "echo \"INSERT INTO jobs (id, input) VALUES (100, 'slow');\" | ./db"))
			slow := start("./worker")
			testkit.Eventually(t, "the slow one has begun", func() bool { return len(done()) == jobs+1 })
			finish(start("./stale", "0"))
			heir := start("./worker")
			testkit.Eventually(t, "the heir has begun", func() bool { return len(done()) == jobs+2 })
			write(t, filepath.Join(dir, fmt.Sprint("go.", heir.Process.Pid)), 0o644, "")
			finish(heir)
			write(t, filepath.Join(dir, "go.all"), 0o644, "")
			finish(slow)
			result := finish(start("sh", "-c", "echo \"SELECT state, result FROM jobs WHERE id = 100;\" | ./db"))
			if result != fmt.Sprintf("done\t%d\n", heir.Process.Pid) {
				t.Errorf("the job that was taken over: %q, want that of %d", result, heir.Process.Pid)
			}
			if text := finish(start("./report")); strings.Contains(text, "taken") || strings.Contains(text, "new") {
				t.Errorf("the report at the end: %q", text)
			}
		})
	}
}
