//go:build integration

package examples_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// Five instances start with the same migrations: each is applied once. Who has lost the lock, and who has an old fence,
// applies nothing.
func TestMigration(t *testing.T) {
	t.Parallel()
	testkit.Need(t, "psql")
	server := sqltest.Postgres(t)
	db := server.NewDatabase(t)
	dir := copyExample(t, "migration")
	write(t, filepath.Join(dir, "1-users.sql"), 0o644, "CREATE TABLE users (id INTEGER PRIMARY KEY);\nINSERT INTO users VALUES (1);\n")
	write(t, filepath.Join(dir, "2-names.sql"), 0o644, "ALTER TABLE users ADD COLUMN name TEXT;\n")
	write(t, filepath.Join(dir, "3 more.sql"), 0o644, "INSERT INTO users VALUES (2, 'two');\n")
	write(t, filepath.Join(dir, "4-wrong.sql"), 0o644, "CREATE TABLE half (id INTEGER);\nINSERT INTO nowhere VALUES (1);\n")
	write(t, filepath.Join(dir, "5-late.sql"), 0o644, "CREATE TABLE late (id INTEGER);\n")
	start := func(argv ...string) *command {
		t.Helper()
		c := newCommand(t, "", dir, argv...)
		c.Env = append(c.Env, "GOLOCK_STORE="+server.URL(db), "PGHOST="+server.Socket, fmt.Sprint("PGPORT=", server.Port), "PGUSER="+server.User, "PGDATABASE="+db)
		return c.start(t)
	}
	query := func(text string) string {
		t.Helper()
		c := start("psql", "-X", "-A", "-t", "-c", text)
		if code := c.code(t); code != 0 {
			t.Fatalf("%s: %s", text, &c.err)
		}
		return strings.TrimSpace(c.out.String())
	}

	var all []*command
	for range 5 {
		all = append(all, start("./migrate", "1-users.sql", "2-names.sql", "3 more.sql"))
	}
	applied := ""
	for _, c := range all {
		if code := c.code(t); code != 0 || c.said() != "" {
			t.Errorf("code %d, stderr %s", code, c.said())
		}
		applied += c.out.String()
	}
	if want := "applied 1-users\napplied 2-names\napplied 3 more\n"; applied != want {
		t.Errorf("all together printed %q, want %q", applied, want)
	}
	if got := query("SELECT count(*), count(DISTINCT fence) FROM migrations"); got != "3|1" {
		t.Errorf("the table of migrations: %s", got)
	}

	// A step that fails leaves nothing of itself.
	wrong := start("./migrate", "4-wrong.sql")
	if code := wrong.code(t); code == 0 || !strings.Contains(wrong.err.String(), "nowhere") {
		t.Errorf("a wrong step: code %d, stderr %s", code, &wrong.err)
	}

	for _, tt := range []struct {
		name string
		argv []string
		says string
	}{
		{"an old fence", []string{"golock", "run", "--name", "migrations", "--", "env", "GOLOCK_FENCE=1", "./apply", "5-late.sql"}, "division by zero"},
		{"a lock that is not held", []string{"./apply", "5-late.sql"}, "the lock is lost"},
	} {
		c := start(tt.argv...)
		if code := c.code(t); code == 0 || !strings.Contains(c.err.String(), tt.says) {
			t.Errorf("%s: code %d, stderr %s", tt.name, code, &c.err)
		}
	}
	if got := query("SELECT count(*) FROM pg_tables WHERE tablename IN ('half', 'late')"); got != "0" {
		t.Errorf("%s tables of steps that were refused", got)
	}
	if code := start("./migrate", "5-late.sql").code(t); code != 0 {
		t.Errorf("the right fence: code %d", code)
	}
}
