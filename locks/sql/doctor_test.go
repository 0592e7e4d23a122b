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
	s, err := f.open(url)
	testkit.Must(t, err)
	defer s.Close()
	found, err := s.Examine(background, 30*time.Second)
	testkit.Must(t, err)
	by := map[string]locks.Finding{}
	for _, f := range found {
		by[f.Subject] = f
		if f.What == "" || f.Subject == "" || (f.Level != locks.OK && f.Why == "") {
			t.Errorf("says too little: %+v", f)
		}
		if strings.Contains(f.What+f.Why+f.Fix+f.Text, sqltest.Password) {
			t.Errorf("tells the password: %+v", f)
		}
	}
	return by
}

func level(t *testing.T, found map[string]locks.Finding, subject string, want locks.Level) {
	t.Helper()
	timed := subject == "rehearsal" || subject == "wake-up"
	if timed && want == locks.OK && found[subject].Level == locks.Note {
		return // a busy machine is slow, and doctor says so
	}
	if f, ok := found[subject]; !ok || f.Level != want {
		t.Errorf("%s: %+v, want %s", subject, f, want)
	}
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
	level(t, found, "table", locks.Note)
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
		level(t, found, subject, locks.OK)
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
		level(t, found, "table", locks.Problem)
		server.Exec(t, database, found["table"].Text)
		if f.name == "postgres" {
			server.Exec(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON golock TO "+poor.Name)
		}
		found = examine(t, f, poor.URL())
		level(t, found, "table", locks.OK)
		level(t, found, "rehearsal", locks.OK)
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
		level(t, found, "rehearsal", locks.Problem)
		level(t, found, "rights", locks.Problem)
	})
}

func TestDoctorForgetful(t *testing.T) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		f := mariadb()
		server := f.start(t, "innodb_flush_log_at_trx_commit=2", "log_bin=binlog", "binlog_format=STATEMENT", "sync_binlog=0", "max_connections=12")
		database := server.NewDatabase(t)
		found := examine(t, f, server.URL(database, "waiters=16"))
		level(t, found, "innodb_flush_log_at_trx_commit", locks.Problem)
		level(t, found, "binlog_format", locks.Problem)
		level(t, found, "sync_binlog", locks.Note)
		level(t, found, "connections", locks.Note)
		server.Exec(t, "", "SET GLOBAL innodb_flush_log_at_trx_commit=1,binlog_format=ROW,sync_binlog=1,read_only=1")
		found = examine(t, f, server.URL(database))
		level(t, found, "innodb_flush_log_at_trx_commit", locks.OK)
		level(t, found, "read_only", locks.Problem)
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
		level(t, found, "fsync", locks.Problem)
		level(t, found, "connections", locks.Note)
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
			server.Exec(t, database, "ALTER TABLE golock ENGINE=Aria")
			level(t, examine(t, f, url), "engine", locks.Problem)
			server.Exec(t, database, "ALTER TABLE golock ENGINE=InnoDB")
		}
		server.Exec(t, database, "UPDATE golock SET format=99 WHERE lock_key='' AND entry_id=''")
		level(t, examine(t, f, url), "table", locks.Problem)
		server.Exec(t, database, "DELETE FROM golock")
		level(t, examine(t, f, url), "table", locks.Note)
	})
}

func TestDoctorBouncer(t *testing.T) {
	t.Parallel()
	server := sqltest.Postgres(t)
	database := server.NewDatabase(t)
	f := postgresql()
	runOnce(t, f, server.URL(database))
	found := examine(t, f, sqltest.StartBouncer(t, server, "transaction").URL(database))
	level(t, found, "pooler", locks.Note)
	level(t, found, "rehearsal", locks.OK)
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
