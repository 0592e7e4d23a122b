//go:build integration

package examples_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Workers share a table of jobs: each job is done once, by one of them, and a worker that is too
// late changes nothing.
func TestJobs(t *testing.T) {
	t.Parallel()
	servers := map[string]func(testing.TB) *sqltest.Server{"mariadb": sqltest.Maria, "psql": sqltest.Postgres}
	testkit.Each(t, servers, func(t *testing.T, client string, server func(testing.TB) *sqltest.Server) {
		testkit.Need(t, client)
		s := onDatabase(t, "jobs", server(t))
		testkit.Must(t, os.Remove(s.Path("work")))
		s.Script("work", `#!/bin/sh
echo "$1" >>log
case $1 in
slow*) until [ -e "go.$PPID" ] || [ -e go.all ]; do sleep 0.1; done; echo "$PPID" ;;
*) printf %s "$1" | wc -c | tr -d ' ' ;;
esac
`)
		start := func(argv ...string) *testkit.Process { return s.Exec(argv...).Begin() }
		query := func(text string) string {
			t.Helper()
			return succeeds(start("sh", "-c", `echo "$0;" | ./db`, text))
		}
		done := func() []string { return lines(s.Read("log")) }

		succeeds(start("sh", "-c", "./db <schema.sql"))
		const jobs = 12
		var want, rows []string
		for i := range jobs {
			want = append(want, fmt.Sprint("job", i))
			rows = append(rows, fmt.Sprintf("(%d, 'job%[1]d')", i))
		}
		query("INSERT INTO jobs (id, input) VALUES " + strings.Join(rows, ", "))
		for _, w := range []*testkit.Process{start("./worker"), start("./worker"), start("./worker")} {
			succeeds(w)
		}
		got := done()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("done were %q", got)
		}
		report := lines(succeeds(start("./report")))
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
		results := "SELECT COUNT(DISTINCT fence), SUM(LENGTH(input) = result) FROM jobs"
		if client == "psql" {
			results = "SELECT COUNT(DISTINCT fence), COUNT(*) FROM jobs WHERE LENGTH(input)::text = result"
		}
		if text := query(results); text != fmt.Sprintf("%d\t%d\n", jobs, jobs) {
			t.Errorf("fences and results: %q", text)
		}

		// A job is taken over from a worker that is slow: it comes too late.
		query("INSERT INTO jobs (id, input) VALUES (100, 'slow')")
		slow := start("./worker")
		s.Eventually("the slow one has begun", func() bool { return len(done()) == jobs+1 })
		succeeds(start("./stale", "0"))
		heir := start("./worker")
		s.Eventually("the heir has begun", func() bool { return len(done()) == jobs+2 })
		s.Write(fmt.Sprint("go.", heir.PID), "")
		succeeds(heir)
		s.Write("go.all", "")
		succeeds(slow)
		if text := query("SELECT state, result FROM jobs WHERE id = 100"); text != fmt.Sprintf("done\t%d\n", heir.PID) {
			t.Errorf("the job that was taken over: %q, want that of %d", text, heir.PID)
		}
		if text := succeeds(start("./report")); strings.Contains(text, "taken") || strings.Contains(text, "new") {
			t.Errorf("the report at the end: %q", text)
		}
	})
}

// Five instances start with the same migrations: each is applied once. One that has lost the lock,
// and one with an old fence, apply nothing.
func TestMigration(t *testing.T) {
	t.Parallel()
	testkit.Need(t, "psql")
	s := onDatabase(t, "migration", sqltest.Postgres(t))
	for name, text := range map[string]string{
		"1-users": "CREATE TABLE users (id INTEGER PRIMARY KEY);\nINSERT INTO users VALUES (1);\n",
		"2-names": "ALTER TABLE users ADD COLUMN name TEXT;\n",
		"3 more":  "INSERT INTO users VALUES (2, 'two');\n",
		"4-wrong": "CREATE TABLE half (id INTEGER);\nINSERT INTO nowhere VALUES (1);\n",
		"5-late":  "CREATE TABLE late (id INTEGER);\n",
	} {
		s.Write(name+".sql", text)
	}
	query := func(text string) string {
		t.Helper()
		return strings.TrimSpace(s.Exec("psql", "-X", "-A", "-t", "-c", text).Run().Expect(t, 0).Stdout)
	}

	var all []*testkit.Process
	for range 5 {
		all = append(all, s.Exec("./migrate", "1-users.sql", "2-names.sql", "3 more.sql").Begin())
	}
	applied := ""
	for _, p := range all {
		applied += succeeds(p)
	}
	if want := "applied 1-users\napplied 2-names\napplied 3 more\n"; applied != want {
		t.Errorf("all together printed %q, want %q", applied, want)
	}
	if got := query("SELECT count(*), count(DISTINCT fence) FROM migrations"); got != "3|1" {
		t.Errorf("the table of migrations: %s", got)
	}

	// A step that fails, or that is refused, leaves nothing of itself.
	for says, argv := range map[string][]string{
		"nowhere": {"./migrate", "4-wrong.sql"},
		"division by zero": {testkit.Golock, "run", "--name", "migrations", "--",
			"env", "GOLOCK_FENCE=1", "./apply", "5-late.sql"},
		"the lock is lost": {"./apply", "5-late.sql"},
	} {
		if r := s.Exec(argv...).Run(); r.Code == 0 || !strings.Contains(r.Stderr, says) {
			t.Errorf("%q: %v, want something about %s", argv, r, says)
		}
	}
	if got := query("SELECT count(*) FROM pg_tables WHERE tablename IN ('half', 'late')"); got != "0" {
		t.Errorf("%s tables of steps that were refused", got)
	}
	s.Exec("./migrate", "5-late.sql").Run().Expect(t, 0)
}
