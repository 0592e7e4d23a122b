//go:build integration

package sql_test

import (
	"strings"
	"testing"

	"golock/locks"
	"golock/locks/locktest"
	"golock/locks/sql/sqltest"
)

// examine gives the findings by their subjects.
func examine(t *testing.T, f family, url string) map[string]locks.Finding {
	t.Helper()
	return locktest.Examine(t, f.openURL(t, url), sqltest.Password)
}

// A good server: no problems, the DDL is there, and nothing stays behind, not
// even the table. (Beside tests that make a server slow doctor would say that.)
func TestDoctorGood(t *testing.T) {
	each(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		found := examine(t, f, b.server.TCPURL(b.name))
		locktest.ExpectFinding(t, found, "table", locks.Note)
		if text := found["table"].Text; !strings.Contains(text, "CREATE TABLE") || !strings.Contains(text, "INSERT INTO") {
			t.Errorf("no DDL: %q", text)
		}
		if _, err := b.server.TryExec(b.name, "SELECT * FROM golock"); err == nil {
			t.Error("the table was made")
		}
		b = f.made(t)
		url := b.server.URL(b.name)
		rows := func() string { return b.exec(t, "SELECT Count(*) FROM golock")[0][0] }
		before := rows()
		found = examine(t, f, url)
		for _, subject := range []string{"version", "table", "test lock", "wake-up", "connections"} {
			locktest.ExpectFinding(t, found, subject, locks.OK)
		}
		for subject, f := range found {
			if f.Level == locks.Problem {
				t.Errorf("%s: %+v", subject, f)
			}
		}
		if after := rows(); after != before {
			t.Errorf("%s rows, %s before", after, before)
		}
	})
}

// Without the right to make the table the text is for somebody who has it; what
// that makes is good. Rights that are missing on it are told.
func TestDoctorRights(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.fresh(t)
		poor := b.server.NewUser(t, b.name, "SELECT", "INSERT", "UPDATE", "DELETE")
		found := examine(t, f, poor.URL())
		locktest.ExpectFinding(t, found, "table", locks.Problem)
		b.exec(t, found["table"].Text)
		if f.name == "postgres" {
			b.exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON golock TO "+poor.Name)
		}
		found = examine(t, f, poor.URL())
		locktest.ExpectFinding(t, found, "table", locks.OK)
		locktest.ExpectFinding(t, found, "test lock", locks.OK)

		reader := b.server.NewUser(t, b.name, "SELECT")
		if f.name == "postgres" {
			b.exec(t, "GRANT SELECT ON golock TO "+reader.Name)
		}
		found = examine(t, f, reader.URL())
		locktest.ExpectFinding(t, found, "test lock", locks.Problem)
		locktest.ExpectFinding(t, found, "rights", locks.Problem)
	})
}

func TestDoctorForgetful(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		if f.name == "postgres" {
			b := f.alone(t, "fsync=off", "max_connections=12")
			found := examine(t, f, b.server.URL(b.name, "waiters=16"))
			locktest.ExpectFinding(t, found, "fsync", locks.Problem)
			locktest.ExpectFinding(t, found, "connections", locks.Note)
			return
		}
		b := f.alone(t, "innodb_flush_log_at_trx_commit=2", "log_bin=binlog", "server_id=1", "binlog_format=STATEMENT",
			"sync_binlog=0", "max_connections=12")
		found := examine(t, f, b.server.URL(b.name, "waiters=16"))
		locktest.ExpectFinding(t, found, "innodb_flush_log_at_trx_commit", locks.Problem)
		locktest.ExpectFinding(t, found, "binlog_format", locks.Problem)
		locktest.ExpectFinding(t, found, "sync_binlog", locks.Note)
		locktest.ExpectFinding(t, found, "connections", locks.Note)
		b.exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit=1,binlog_format=ROW,sync_binlog=1,read_only=1")
		found = examine(t, f, b.server.URL(b.name))
		locktest.ExpectFinding(t, found, "innodb_flush_log_at_trx_commit", locks.OK)
		locktest.ExpectFinding(t, found, "read_only", locks.Problem)
		if f, ok := found["binlog_format"]; ok {
			t.Errorf("%+v", f)
		}
	})
}

// Somebody has made the table by hand, of a kind without transactions; or it is
// of another format.
func TestDoctorOddTable(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		b := f.made(t)
		url := b.server.URL(b.name)
		if f.name == "mariadb" {
			b.exec(t, "ALTER TABLE golock ENGINE=MyISAM")
			locktest.ExpectFinding(t, examine(t, f, url), "engine", locks.Problem)
			b.exec(t, "ALTER TABLE golock ENGINE=InnoDB")
		}
		b.exec(t, "UPDATE golock SET format=99 WHERE lock_key='' AND entry_id=''")
		locktest.ExpectFinding(t, examine(t, f, url), "test lock", locks.Problem, "format 99")
		b.exec(t, "DELETE FROM golock")
		locktest.ExpectFinding(t, examine(t, f, url), "table", locks.Note)
	})
}

func TestDoctorBouncer(t *testing.T) {
	t.Parallel()
	f := postgresql()
	b := f.made(t)
	found := examine(t, f, sqltest.StartBouncer(t, b.server, sqltest.Transaction).URL(b.name))
	locktest.ExpectFinding(t, found, "pooler", locks.Note)
	locktest.ExpectFinding(t, found, "test lock", locks.OK)
}
