//go:build integration

package sql_test

import (
	"strings"
	"testing"
	"time"

	"golock/locks"
	. "golock/locks/locktest"
	"golock/locks/sql/sqltest"
	"golock/test/testkit"
)

// examine gives the findings by their subjects.
func examine(t *testing.T, f family, url string) map[string]locks.Finding {
	t.Helper()
	return Examine(t, f.openURL(t, url), sqltest.Password)
}

// runOnce uses the store, which makes its table.
func runOnce(t *testing.T, f family, url string) {
	t.Helper()
	Release(t, Get(t, f.openURL(t, url), "n")) // the server may have just been started
}

// A good server: no problems, the DDL is there, and nothing stays behind, not
// even the table.
func TestDoctorGood(t *testing.T) {
	for _, f := range families() { // not beside tests that make a server slow, which doctor would say
		t.Run(f.name, func(t *testing.T) { testDoctorGood(t, f) })
	}
}

func testDoctorGood(t *testing.T, f family) {
	server := f.shared(t)
	database := server.NewDatabase(t)
	url := server.TCPURL(database)
	found := examine(t, f, url)
	Level(t, found, "table", locks.Note)
	if text := found["table"].Text; !strings.Contains(text, "CREATE TABLE") || !strings.Contains(text, "INSERT INTO") {
		t.Errorf("no DDL: %q", text)
	}
	if _, err := server.TryExec(database, "SELECT * FROM golock"); err == nil {
		t.Error("the table was made")
	}
	runOnce(t, f, url)
	before := server.Exec(t, database, "SELECT Count(*) FROM golock")[0][0]
	found = examine(t, f, url)
	for _, subject := range []string{"version", "table", "rehearsal", "wake-up", "connections"} {
		Level(t, found, subject, locks.OK)
	}
	for subject, f := range found {
		if f.Level == locks.Problem {
			t.Errorf("%s: %+v", subject, f)
		}
	}
	if after := server.Exec(t, database, "SELECT Count(*) FROM golock")[0][0]; after != before {
		t.Errorf("%s rows, %s before", after, before)
	}
}

// Without the right to make the table the text is for somebody who has it; what
// that makes is good.
func TestDoctorMayNotCreate(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		database := server.NewDatabase(t)
		poor := server.NewUser(t, database, "SELECT", "INSERT", "UPDATE", "DELETE")
		found := examine(t, f, poor.URL())
		Level(t, found, "table", locks.Problem)
		server.Exec(t, database, found["table"].Text)
		if f.name == "postgres" {
			server.Exec(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON golock TO "+poor.Name)
		}
		found = examine(t, f, poor.URL())
		Level(t, found, "table", locks.OK)
		Level(t, found, "rehearsal", locks.OK)
	})
}

// Rights that are missing on the table.
func TestDoctorFewRights(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		database := server.NewDatabase(t)
		runOnce(t, f, server.URL(database))
		reader := server.NewUser(t, database, "SELECT")
		if f.name == "postgres" {
			server.Exec(t, database, "GRANT SELECT ON golock TO "+reader.Name)
		}
		found := examine(t, f, reader.URL())
		Level(t, found, "rehearsal", locks.Problem)
		Level(t, found, "rights", locks.Problem)
	})
}

func TestDoctorForgetful(t *testing.T) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		f := mariadb()
		server := f.start(t, "innodb_flush_log_at_trx_commit=2", "log_bin=binlog", "server_id=1", "binlog_format=STATEMENT", "sync_binlog=0", "max_connections=12")
		database := server.NewDatabase(t)
		found := examine(t, f, server.URL(database, "waiters=16"))
		Level(t, found, "innodb_flush_log_at_trx_commit", locks.Problem)
		Level(t, found, "binlog_format", locks.Problem)
		Level(t, found, "sync_binlog", locks.Note)
		Level(t, found, "connections", locks.Note)
		server.Exec(t, "", "SET GLOBAL innodb_flush_log_at_trx_commit=1,binlog_format=ROW,sync_binlog=1,read_only=1")
		found = examine(t, f, server.URL(database))
		Level(t, found, "innodb_flush_log_at_trx_commit", locks.OK)
		Level(t, found, "read_only", locks.Problem)
		if f, ok := found["binlog_format"]; ok {
			t.Errorf("%+v", f)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f := postgresql()
		server := f.start(t, "fsync=off", "max_connections=12")
		database := server.NewDatabase(t)
		found := examine(t, f, server.URL(database, "waiters=16"))
		Level(t, found, "fsync", locks.Problem)
		Level(t, found, "connections", locks.Note)
	})
}

// Somebody has made the table by hand, of a kind without transactions; or it is
// of another format.
func TestDoctorOddTable(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		database := server.NewDatabase(t)
		url := server.URL(database)
		runOnce(t, f, url)
		if f.name == "mariadb" {
			server.Exec(t, database, "ALTER TABLE golock ENGINE=MyISAM")
			Level(t, examine(t, f, url), "engine", locks.Problem)
			server.Exec(t, database, "ALTER TABLE golock ENGINE=InnoDB")
		}
		server.Exec(t, database, "UPDATE golock SET format=99 WHERE lock_key='' AND entry_id=''")
		Level(t, examine(t, f, url), "table", locks.Problem)
		server.Exec(t, database, "DELETE FROM golock")
		Level(t, examine(t, f, url), "table", locks.Note)
	})
}

func TestDoctorBouncer(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t)
	database := server.NewDatabase(t)
	f := postgresql()
	runOnce(t, f, server.URL(database))
	found := examine(t, f, sqltest.StartBouncer(t, server, "transaction").URL(database))
	Level(t, found, "pooler", locks.Note)
	Level(t, found, "rehearsal", locks.OK)
}

// One that is not there, or lets nobody in, cannot be examined.
func TestDoctorOutage(t *testing.T) {
	both(t, func(t *testing.T, f family) {
		server := f.shared(t)
		url := strings.Replace(server.TCPURL("nosuch"), sqltest.Password, "wr0ng", 1)
		s, err := f.open(url)
		testkit.Must(t, err)
		defer s.Close()
		if found, err := s.Examine(background, time.Minute); err == nil || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%v, %v", found, err)
		}
	})
}
